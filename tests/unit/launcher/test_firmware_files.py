"""ACPI tables and the data of Ignition: checked, copied, and refused with the field that asks for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from framework.acpi import acpi_table

from tests.unit.launcher.parts import make_parts, paths_in
from virt_core.apis.base import from_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.disks.prepare import DiskPreparer
from virt_launcher.disks.sources import FirmwareFiles
from virt_launcher.domain.domain import from_xml
from virt_launcher.errors import InvalidVMIError
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.process.children import Children

UID = "7043063b-e1c9-464f-9ce7-9189037edf72"
SECRET = {"name": "keys", "secret": {"secretName": "s"}}
IGNITION = '{"ignition": {"version": "3.4.0"}, "passwd": {}}'
ACPI = "spec.domain.firmware.acpi"


def vmi(acpi: dict[str, str] | None = None, data: str | None = None, *volumes: Any) -> VirtualMachineInstance:
    annotations = {"kubevirt.io/ignitiondata": data} if data is not None else {}
    domain = {"memory": {"guest": "64Mi"}, "devices": {}, "firmware": {"acpi": acpi}}
    metadata = {"name": "vm1", "namespace": "ns", "uid": UID, "annotations": annotations}
    body = {"metadata": metadata, "spec": {"domain": domain, "volumes": list(volumes) or [SECRET]}}
    return from_plain(body, VirtualMachineInstance)


def prepared(root: Path, asked: VirtualMachineInstance) -> FirmwareFiles:
    return DiskPreparer(paths_in(root), Children()).prepare(asked).firmware


def secret(root: Path, **files: bytes) -> Path:
    folder = root / "private/file-volumes/keys"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / f"{name}.bin").write_bytes(content)
    return folder


def test_tables_are_copied_for_qemu_alone(tmp_path: Path) -> None:
    slic, msdm = acpi_table("SLIC"), acpi_table("MSDM", bytes(65535 - 36))
    folder = secret(tmp_path, slic=slic, msdm=msdm)
    asked = vmi({"slicNameRef": "keys", "msdmNameRef": "keys"})
    found = prepared(tmp_path, asked)
    assert (Path(found.slic).read_bytes(), Path(found.msdm).read_bytes()) == (slic, msdm)
    assert {os.stat(path).st_mode & 0o777 for path in (found.slic, found.msdm)} == {0o600}
    # What the machine was started with stays, whatever becomes of the Secret.
    (folder / "slic.bin").write_bytes(b"other")
    assert prepared(tmp_path, asked) == found
    assert Path(found.slic).read_bytes() == slic
    assert not [path for path in Path(found.slic).parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (acpi_table("MSDM"), r"signature 'MSDM'; it must be 'SLIC'"),
        (b"", "has 0 bytes; the header of an ACPI table alone has 36"),
        (acpi_table("SLIC")[:35], "has 35 bytes"),
        (acpi_table("SLIC", length=44), "has 43 bytes, but its header says 44"),
        (acpi_table("SLIC", checksum=1), "wrong checksum"),
        (acpi_table("SLIC", bytes(65536 - 36)), "more than 65535 bytes"),
    ],
)
def test_a_broken_table_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    secret(tmp_path, slic=content)
    with pytest.raises(InvalidVMIError, match=words) as caught:
        prepared(tmp_path, vmi({"slicNameRef": "keys"}))
    assert caught.value.field == f"{ACPI}.slicNameRef"
    assert not (tmp_path / "ephemeral/acpi-tables/slic.bin").exists()


@pytest.mark.parametrize(
    ("name", "volumes", "words"),
    [
        ("keys", [SECRET], "the Secret has no msdm.bin"),
        ("other", [SECRET], "there is no Secret volume 'other'"),
        ("keys", [{"name": "keys", "emptyDisk": {"capacity": "1Mi"}}], "there is no Secret volume 'keys'"),
        ("../keys", [{"name": "../keys", "secret": {"secretName": "s"}}], "not a valid volume name"),
    ],
)
def test_a_table_that_is_nowhere(tmp_path: Path, name: str, volumes: list[Any], words: str) -> None:
    secret(tmp_path, slic=acpi_table("SLIC"))
    with pytest.raises(InvalidVMIError, match=words) as caught:
        prepared(tmp_path, vmi({"msdmNameRef": name}, None, *volumes))
    assert caught.value.field == f"{ACPI}.msdmNameRef"


def test_the_data_of_ignition_is_for_qemu_alone(tmp_path: Path) -> None:
    found = prepared(tmp_path, vmi(data=IGNITION))
    assert found == FirmwareFiles(ignition=str(tmp_path / "ephemeral/ignition-data/data.ign"))
    assert Path(found.ignition).read_text() == IGNITION
    assert os.stat(found.ignition).st_mode & 0o777 == 0o600


def test_what_is_no_data_of_ignition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidVMIError, match="must be JSON") as caught:
        prepared(tmp_path, vmi(data="variant: fcos"))
    assert caught.value.field == "metadata.annotations[kubevirt.io/ignitiondata]"


def test_a_machine_without_either_has_no_such_files(tmp_path: Path) -> None:
    assert prepared(tmp_path, vmi()) == FirmwareFiles()
    assert not (tmp_path / "ephemeral").exists()


def test_the_machine_is_told_where_they_are(tmp_path: Path) -> None:
    secret(tmp_path, slic=acpi_table("SLIC"))
    parts = make_parts(tmp_path)
    parts.manager.sync(vmi({"slicNameRef": "keys"}, IGNITION), SyncOptions())
    domain = from_xml(parts.hypervisor.describe())
    assert [(table.type, table.path) for table in domain.os.acpi_tables] == [
        ("slic", str(tmp_path / "ephemeral/acpi-tables/slic.bin"))
    ]
    data = tmp_path / "ephemeral/ignition-data/data.ign"
    assert [word.value for word in domain.arguments] == ["-fw_cfg", f"name=opt/com.coreos/config,file={data}"]
