"""Every kind of volume, seen from inside a container."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from functional.local.node.support import Node, eventually, shell, waiting
from unit.local.node.layouts import LayoutBuilder, directory, entry

from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.podvolumes import HostPathVolumeSource, PersistentVolumeClaimSpec
from virt_core.apis.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
)

pytestmark = pytest.mark.root


def run(node: Node, script: str, volume: dict[str, Any], mount: dict[str, Any] | None = None, **spec: Any) -> str:
    container = shell(script, volumeMounts=[{"name": "v", "mountPath": "/v", **(mount or {})}])
    return node.run({"containers": [container], "volumes": [{"name": "v", **volume}], **spec})


def output(node: Node, uid: str) -> str:
    node.wait_phase(uid, "Succeeded")
    return node.log(uid)


def test_config_map_with_items_and_mode(node: Node) -> None:
    node.objects.config_maps["cm"] = ConfigMap(data={"a": "1", "b": "2"})
    items = [{"key": "a", "path": "dir/x", "mode": 0o400}]
    uid = run(node, "cat /v/dir/x; echo; stat -L -c %a /v/dir/x; ls /v", {"configMap": {"name": "cm", "items": items}})
    assert output(node, uid) == "1\n400\ndir\n"


def test_a_missing_config_map_waits_until_it_comes(node: Node) -> None:
    uid = run(node, "cat /v/a; echo", {"configMap": {"name": "late"}})
    eventually(lambda: bool(node.status(uid).container_statuses))
    assert "there is no ConfigMap default/late" in waiting(node.status(uid)).message
    assert ("Warning", "FailedMount") in [event[:2] for event in node.events.seen]
    node.objects.config_maps["late"] = ConfigMap(data={"a": "here"})
    assert output(node, uid) == "here\n"


def test_secret_lies_in_memory_and_belongs_to_the_group(node: Node) -> None:
    node.objects.secrets["s"] = Secret(data={"k": base64.b64encode(b"hush").decode()})
    uid = run(
        node,
        "cat /v/k; echo; stat -L -c %a:%g /v/k; grep ' /v ' /proc/mounts",
        {"secret": {"secretName": "s", "defaultMode": 0o600}},
        securityContext={"runAsUser": 5, "fsGroup": 77},
    )
    lines = output(node, uid).splitlines()
    assert lines[:2] == ["hush", "640:77"]
    assert lines[2].startswith("tmpfs /v tmpfs ro")


def test_projected_token_downward_api_and_configmap_together(node: Node) -> None:
    node.objects.config_maps["ca"] = ConfigMap(data={"ca.crt": "CERT"})
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "x"}},
        {"configMap": {"name": "ca"}},
        {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    uid = run(node, "cat /v/token /v/ca.crt /v/ns; echo", {"projected": {"sources": sources}}, serviceAccountName="bob")
    assert output(node, uid) == "token-of-bobCERTdefault\n"
    request = node.objects.tokens[0]
    assert (request.audiences, request.expiration_seconds) == (["x"], 600)
    assert request.bound_object_ref is not None
    assert request.bound_object_ref.uid == uid


def test_empty_dir_for_the_group_and_in_memory(node: Node) -> None:
    uid = run(
        node,
        "touch /v/x && stat -c %a:%g /v && stat -c %u:%g /v/x; grep -c 'tmpfs /v ' /proc/mounts",
        {"emptyDir": {"medium": "Memory"}},
        securityContext={"runAsUser": 1000, "fsGroup": 3000},
    )
    assert output(node, uid) == "2777:3000\n1000:3000\n1\n"


def test_empty_dir_of_huge_pages(node: Node) -> None:
    script = "stat -c %a:%g /v; grep ' /v ' /proc/mounts"
    container = shell(script, volumeMounts=[{"name": "v", "mountPath": "/v"}])
    container["resources"] = {"limits": {"hugepages-2Mi": "4Mi", "memory": "64Mi"}}
    volume = {"name": "v", "emptyDir": {"medium": "HugePages"}}
    uid = node.run({"containers": [container], "volumes": [volume], "securityContext": {"fsGroup": 3000}})
    mode, mount = output(node, uid).splitlines()
    assert mode == "2777:3000"
    assert mount.split()[2] == "hugetlbfs"
    assert {"pagesize=2M", "size=4194304"} <= set(mount.split()[3].split(","))


@pytest.mark.parametrize("how", ["volume", "container"])
def test_a_pod_that_takes_more_disk_than_it_may_is_evicted(node: Node, how: str) -> None:
    script = "dd if=/dev/zero of=/v/x bs=1M count=3; exec sleep 600"
    container = shell(script, volumeMounts=[{"name": "v", "mountPath": "/v"}])
    empty = {"sizeLimit": "2Mi"} if how == "volume" else {}
    if how == "container":
        container["resources"] = {"limits": {"ephemeral-storage": "2Mi"}}
    uid = node.run({"containers": [container], "volumes": [{"name": "v", "emptyDir": empty}]})
    status = node.wait_phase(uid, "Failed")
    assert status.reason == "Evicted"
    assert ('EmptyDir volume "v"' if how == "volume" else "total limit of containers") in status.message
    assert ("Warning", "Evicted") in [event[:2] for event in node.events.seen]


def test_host_path(node: Node, tmp_path: Path) -> None:
    uid = run(node, "echo x > /v/new", {"hostPath": {"path": str(tmp_path / "d"), "type": "DirectoryOrCreate"}})
    output(node, uid)
    assert (tmp_path / "d" / "new").read_text() == "x\n"


def test_image_volume_is_read_only_and_unpacked_once(node: Node, tmp_path: Path) -> None:
    layout = LayoutBuilder(tmp_path / "l").layer([directory("disk"), entry("disk/disk.img", b"DISK")]).write()
    image = node.store.import_layout(layout, "test.internal/disk:v1")
    script = "cat /v/disk/disk.img; echo; touch /v/x 2>&1 || echo read-only"
    volume = {"image": {"reference": "test.internal/disk:v1", "pullPolicy": "IfNotPresent"}}
    for _ in range(2):
        uid = run(node, script, volume)
        assert output(node, uid).splitlines() == ["DISK", "touch: /v/x: Read-only file system", "read-only"]
    assert [path.name for path in (node.store.root / "rootfs").iterdir() if path.name == image.chain] == [image.chain]


def test_a_missing_image_volume_is_named(node: Node) -> None:
    uid = run(node, "true", {"image": {"reference": "test.internal/none:v1", "pullPolicy": "Never"}})
    eventually(lambda: bool(node.status(uid).container_statuses))
    assert waiting(node.status(uid)).reason == "ErrImageNeverPull"
    assert "test.internal/none:v1" in waiting(node.status(uid)).message


def test_claim_bound_to_a_host_path(node: Node, tmp_path: Path) -> None:
    node.objects.claims["c"] = PersistentVolumeClaim(
        metadata=ObjectMeta(name="c", uid="u1"),
        spec=PersistentVolumeClaimSpec(volume_name="pv"),
        status=PersistentVolumeClaimStatus(phase="Bound"),
    )
    node.objects.volumes["pv"] = PersistentVolume(
        metadata=ObjectMeta(name="pv"),
        spec=PersistentVolumeSpec(
            host_path=HostPathVolumeSource(path=str(tmp_path)), claim_ref=ObjectReference(uid="u1")
        ),
    )
    output(node, run(node, "echo kept > /v/x", {"persistentVolumeClaim": {"claimName": "c"}}))
    assert (tmp_path / "x").read_text() == "kept\n"


def test_sub_path_is_made_and_shared(node: Node, tmp_path: Path) -> None:
    uid = run(node, "echo x > /v/f", {"hostPath": {"path": str(tmp_path)}}, {"subPath": "a/b"})
    output(node, uid)
    assert (tmp_path / "a" / "b" / "f").read_text() == "x\n"


@pytest.mark.parametrize("target", ["/etc", "../../etc", "/"])
def test_a_link_as_sub_path_does_not_lead_out(node: Node, tmp_path: Path, target: str) -> None:
    """A volume's content is the Pod's to choose: a link in it must not show the node's files."""
    (tmp_path / "trap").symlink_to(target)
    uid = run(node, "ls /v", {"hostPath": {"path": str(tmp_path)}}, {"subPath": "trap"})
    eventually(lambda: bool(node.status(uid).container_statuses))
    assert "sub-path 'trap' cannot be used" in waiting(node.status(uid)).message
    assert node.phase(uid) == "Pending"


def test_env_from_everywhere(node: Node) -> None:
    node.objects.config_maps["cm"] = ConfigMap(data={"A": "from-cm", "B": "b"})
    node.objects.secrets["s"] = Secret(data={"K": base64.b64encode(b"key").decode()})
    env = [
        {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "A"}}},
        {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "s", "key": "K"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "Z", "value": "$(X)-$(NOPE)-$$(X)"},
    ]
    container = shell(
        "echo $X $Y $MEM $P_B; echo $Z; echo $IP; echo $0",
        env=env,
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "cm"}}],
        resources={"limits": {"memory": "64Mi"}},
        args=["arg-$(Y)"],
    )
    uid = node.run({"containers": [container]})
    lines = output(node, uid).splitlines()
    assert lines[0] == "from-cm key 64 b"
    assert lines[1] == "from-cm-$(NOPE)-$(X)"
    assert lines[2] == node.status(uid).pod_ip != ""
    assert lines[3] == "arg-key"
