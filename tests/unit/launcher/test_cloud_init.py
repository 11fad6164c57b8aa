"""Cloud-init images: what is on them, read back with pycdlib, and where the data may come from."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pycdlib
import pytest

from tests.unit.launcher.cases import UID
from tests.unit.launcher.parts import plain_vmi
from virt_core.apis.base import from_plain
from virt_core.apis.volumes import CloudInitConfigDriveSource, CloudInitNoCloudSource
from virt_launcher.disks import iso_child
from virt_launcher.disks.cloud_init import SecretDirs, config_drive, no_cloud
from virt_launcher.errors import InvalidVMIError


@pytest.fixture
def secrets(tmp_path: Path) -> SecretDirs:
    dirs = SecretDirs(tmp_path / "user", tmp_path / "network")
    dirs.user_data.mkdir()
    dirs.network_data.mkdir()
    return dirs


def no_cloud_files(source: dict[str, Any], secrets: SecretDirs, **spec: Any) -> dict[str, bytes]:
    return no_cloud(plain_vmi(**spec), from_plain(source, CloudInitNoCloudSource), "f", secrets).files


def test_no_cloud(secrets: SecretDirs) -> None:
    files = no_cloud_files({"userData": "hello", "networkData": "version: 2"}, secrets, hostname="box")
    assert json.loads(files["meta-data"]) == {"instance-id": UID, "local-hostname": "box"}
    assert (files["user-data"], files["network-config"]) == (b"hello", b"version: 2")


def test_config_drive(secrets: SecretDirs) -> None:
    source = from_plain({"userDataBase64": base64.b64encode(b"hi").decode()}, CloudInitConfigDriveSource)
    plan = config_drive(plain_vmi(), source, "f", secrets)
    assert plan.label == "config-2"
    assert plan.files["openstack/latest/user_data"] == b"hi"
    meta = json.loads(plan.files["openstack/latest/meta_data.json"])
    assert (meta["instance_id"], meta["hostname"], meta["uuid"]) == ("vm1.ns", "vm1", UID)


@pytest.mark.parametrize("key", ["userdata", "userData"])
def test_from_secrets(secrets: SecretDirs, key: str) -> None:
    (secrets.user_data / key).write_bytes(b"from the secret")
    (secrets.network_data / "networkdata").write_bytes(b"net")
    source = {"secretRef": {"name": "s"}, "networkDataSecretRef": {"name": "n"}}
    files = no_cloud_files(source, secrets)
    assert (files["user-data"], files["network-config"]) == (b"from the secret", b"net")


def test_a_secret_without_the_key(secrets: SecretDirs) -> None:
    with pytest.raises(InvalidVMIError, match=r"^f\.secretRef: Secret 's' has no key userdata or userData"):
        no_cloud_files({"secretRef": {"name": "s"}}, secrets)


def test_bad_base64(secrets: SecretDirs) -> None:
    with pytest.raises(InvalidVMIError, match=r"^f\.userDataBase64: "):
        no_cloud_files({"userDataBase64": "!"}, secrets)


def test_the_image_holds_the_files_under_their_names(tmp_path: Path) -> None:
    source = tmp_path / "root"
    (source / "openstack/latest").mkdir(parents=True)
    (source / "openstack/latest/user_data").write_bytes(b"deep")
    (source / "meta-data").write_bytes(b"flat")
    target = tmp_path / "x.iso"
    iso_child.build("cidata", source, target)
    assert target.stat().st_size % 4096 == 0  # Direct IO needs whole blocks.
    image = pycdlib.PyCdlib()
    image.open(str(target))
    assert image.pvd.volume_identifier.strip() == b"cidata"
    for name, content in (("/meta-data", b"flat"), ("/openstack/latest/user_data", b"deep")):
        for kind in ("rr_path", "joliet_path"):
            out = io.BytesIO()
            image.get_file_from_iso_fp(out, **{kind: name})
            assert out.getvalue() == content
    image.close()
