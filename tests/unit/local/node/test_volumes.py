"""Volume content, without mounts."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from virt_core.apis.auth import TokenRequestSpec, TokenRequestStatus
from virt_core.apis.base import from_plain
from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.pods import Pod
from virt_core.apis.podvolumes import Volume
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.times import rfc3339
from virt_local.node.layout import NodeLayout
from virt_local.node.oci.downward import DownwardFacts
from virt_local.node.volumes.atomic import write_files
from virt_local.node.volumes.base import VolumeError
from virt_local.node.volumes.manager import VolumeManager
from virt_local.node.volumes.payload import Collector, File, Payload

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Objects:
    def __init__(self) -> None:
        self.maps = {"cm": ConfigMap(data={"a": "1"}, binary_data={"b": base64.b64encode(b"\0").decode()})}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self.maps.get(name)

    def secret(self, namespace: str, name: str) -> Secret | None:
        return None

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self.claims.get(name)

    def volume(self, name: str) -> PersistentVolume | None:
        return self.volumes.get(name)

    def network(self, namespace: str, name: str) -> None:
        raise AssertionError("volumes need no networks")

    def token(self, namespace: str, account: str, request: TokenRequestSpec) -> TokenRequestStatus:
        return TokenRequestStatus(token="t", expiration_timestamp=rfc3339(NOW + timedelta(hours=1)))


def pod(*volumes: dict[str, Any]) -> Pod:
    meta = {"name": "p", "namespace": "n", "uid": "u"}
    return from_plain({"metadata": meta, "spec": {"volumes": list(volumes), "containers": [{"name": "c"}]}}, Pod)


def collect(source: dict[str, Any]) -> Payload:
    payload = Collector(pod(), Objects(), DownwardFacts(), NOW).collect(from_plain({"name": "v", **source}, Volume))
    assert payload is not None
    return payload


def test_all_keys_or_chosen_ones() -> None:
    assert collect({"configMap": {"name": "cm"}}).files == {"a": File(b"1", 0o644), "b": File(b"\0", 0o644)}
    items = [{"key": "a", "path": "x/y", "mode": 0o400}]
    assert collect({"configMap": {"name": "cm", "items": items}}).files == {"x/y": File(b"1", 0o400)}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMap": {"name": "no"}}, "there is no ConfigMap n/no"),
        ({"secret": {"secretName": "no"}}, "there is no Secret n/no"),
        ({"configMap": {"name": "cm", "items": [{"key": "x", "path": "x"}]}}, "has no key 'x'"),
        ({"configMap": {"name": "cm", "items": [{"key": "a", "path": "../x"}]}}, "'../x'"),
        ({"configMap": {"name": "cm", "items": [{"key": "a", "path": "a/../../x"}]}}, "leads out"),
        ({"configMap": {"name": "cm", "items": [{"key": "a", "path": "/etc/x"}]}}, "is not a path"),
        ({"configMap": {"name": "cm", "items": [{"key": "a", "path": "..data"}]}}, "is not a path"),
    ],
)
def test_what_cannot_be_made_says_why(source: dict[str, Any], message: str) -> None:
    with pytest.raises(VolumeError, match=message):
        collect(source)


def test_optional_sources_may_be_absent() -> None:
    assert collect({"configMap": {"name": "no", "optional": True}}).files == {}


def test_a_token_is_renewed_in_time() -> None:
    payload = collect({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})
    assert payload.files["token"].data == b"t"
    assert payload.renew_at == NOW + timedelta(minutes=48)


def test_an_update_swaps_all_files_at_once(tmp_path: Path) -> None:
    assert write_files(tmp_path, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)}, None)
    first = os.readlink(tmp_path / "..data")
    assert (tmp_path / "a").read_bytes() == b"1"
    assert not write_files(tmp_path, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)}, None)
    assert os.readlink(tmp_path / "..data") == first
    assert write_files(tmp_path, {"a": File(b"3", 0o644)}, None)
    assert sorted(name for name in os.listdir(tmp_path) if not name.startswith("..")) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"3"
    assert not (tmp_path / first).exists()


def test_empty_dir_and_config_map_in_the_kubelets_places(tmp_path: Path) -> None:
    manager = VolumeManager(NodeLayout(tmp_path), Objects(), FakeClock(NOW))
    of = pod({"name": "e", "emptyDir": {}}, {"name": "c", "configMap": {"name": "cm"}})
    made = manager.prepare(of, DownwardFacts(), {})
    assert made.mounted["e"].path == tmp_path / "pods/u/volumes/kubernetes.io~empty-dir/e"
    assert made.mounted["e"].path.stat().st_mode & 0o7777 == 0o777
    assert made.mounted["c"].path == tmp_path / "pods/u/volumes/kubernetes.io~configmap/c"
    assert made.mounted["c"].read_only
    assert made.refreshable
    (made.mounted["e"].path / "kept").touch()
    made.mounted["e"].path.chmod(0o700)
    again = manager.prepare(of, DownwardFacts(), {})
    assert (again.mounted["e"].path / "kept").exists()
    assert again.mounted["e"].path.stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize(
    ("phase", "owner", "message"),
    [("Pending", "u1", "is not bound"), ("Bound", "other", "belongs to another claim")],
)
def test_a_claim_must_be_bound_to_its_own_volume(tmp_path: Path, phase: str, owner: str, message: str) -> None:
    objects = Objects()
    objects.claims["pvc"] = from_plain(
        {"metadata": {"uid": "u1"}, "spec": {"volumeName": "pv"}, "status": {"phase": phase}}, PersistentVolumeClaim
    )
    objects.volumes["pv"] = from_plain(
        {"metadata": {"name": "pv"}, "spec": {"hostPath": {"path": str(tmp_path)}, "claimRef": {"uid": owner}}},
        PersistentVolume,
    )
    manager = VolumeManager(NodeLayout(tmp_path), objects, FakeClock(NOW))
    with pytest.raises(VolumeError, match=message):
        manager.prepare(pod({"name": "v", "persistentVolumeClaim": {"claimName": "pvc"}}), DownwardFacts(), {})


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    manager = VolumeManager(NodeLayout(tmp_path), Objects(), FakeClock(NOW))
    with pytest.raises(VolumeError, match="volume 'v': its kind"):
        manager.prepare(pod({"name": "v", "csi": {"driver": "x"}}), DownwardFacts(), {})
