"""Bad manifests: refused at the door with the field's path, or failed with a reason that `explain` repeats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot, vmi, with_volume

pytestmark = pytest.mark.e2e


def unknown_field() -> dict[str, Any]:
    manifest = vmi("bad")
    manifest["spec"]["domain"]["cpuu"] = {"cores": 2}
    return manifest


def negative_memory() -> dict[str, Any]:
    manifest = vmi("bad")
    manifest["spec"]["domain"]["memory"]["guest"] = "-1Mi"
    return manifest


def two_sources() -> dict[str, Any]:
    manifest = vmi("bad")
    manifest["spec"]["volumes"][0]["emptyDisk"] = {"capacity": "1Gi"}
    return manifest


def dangling_disk() -> dict[str, Any]:
    manifest = vmi("bad")
    manifest["spec"]["domain"]["devices"]["disks"].append({"name": "nowhere", "disk": {}})
    return manifest


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (unknown_field(), "spec.domain.cpuu"),
        (negative_memory(), "spec.domain.memory.guest"),
        (two_sources(), "spec.volumes[0]"),
        (dangling_disk(), "spec.domain.devices.disks[1].name"),
    ],
)
def test_refused_with_the_path_of_the_field(space: Space, manifest: dict[str, Any], path: str) -> None:
    assert path in space.refuse(manifest)
    assert not space.engine.get("-n", space.namespace, "vmi")["items"]
    assert not space.engine.get("-n", space.namespace, "pods")["items"]


@pytest.mark.parametrize("kind", ["VirtualMachineInstance", "VirtualMachine"])
def test_all_that_is_not_built_is_named_at_once_and_nothing_is_stored(space: Space, kind: str) -> None:
    manifest = vmi("ahead")
    with_volume(manifest, "second", {"emptyDisk": {"capacity": "8Mi"}})
    for disk in manifest["spec"]["domain"]["devices"]["disks"]:
        disk["changedBlockTracking"] = True
    above = "spec"
    if kind == "VirtualMachine":
        above = "spec.template.spec"
        manifest |= {"kind": kind, "spec": {"runStrategy": "Always", "template": {"spec": manifest["spec"]}}}
    said = space.refuse(manifest)
    for field in ("domain.devices.disks[0].changedBlockTracking", "domain.devices.disks[1].changedBlockTracking"):
        assert f"{above}.{field}: " in said
    assert said.count("is not built yet") >= 2
    for plural in ("vm", "vmi", "pods"):
        assert not space.engine.get("-n", space.namespace, plural)["items"]


def test_absent_image_is_named(space: Space) -> None:
    """The VMI waits, and says for which image; deleting it leaves nothing."""
    manifest = vmi("noimage")
    manifest["spec"]["volumes"][0]["containerDisk"]["image"] = "virtpod.internal/absent:v9"
    space.apply(manifest)
    eventually(lambda: "virtpod.internal/absent:v9" in space.virtctl("explain", "vmi", "noimage"), within_s=30)
    space.kubectl("delete", "vmi", "noimage", "--timeout=60s")
    space.gone("pods")


def test_device_that_nobody_permits_is_warned_of_and_waited_for(space: Space) -> None:
    """Its name may be that of something else, so no Pod asks for it; the VMI says which field it is."""
    manifest = vmi("gpu")
    manifest["spec"]["domain"]["devices"]["gpus"] = [{"name": "g", "deviceName": "cpu"}]
    done = space.engine.run("kubectl", "-n", space.namespace, "apply", "-f", "-", stdin=json.dumps(manifest))
    assert done.returncode == 0, done.stderr
    assert "Warning: spec.domain.devices.gpus[0].deviceName" in done.stderr
    field = "spec.domain.devices.gpus[0].deviceName"
    eventually(lambda: field in space.virtctl("explain", "vmi", "gpu"), within_s=30)
    assert not space.engine.get("-n", space.namespace, "pods")["items"]
    space.kubectl("delete", "vmi", "gpu", "--timeout=60s")


def test_unknown_processor_model_fails_with_the_field(space: Space) -> None:
    """QEMU knows only when it starts; the VMI says it once instead of trying for minutes."""
    manifest = kernel_boot("nocpu")
    manifest["spec"]["domain"]["cpu"] = {"model": "nosuchmodel"}
    space.apply(manifest)
    failed = space.phase("nocpu", "Failed", within_s=60)
    assert failed["status"]["reason"] == "InvalidSpec"
    text = space.virtctl("explain", "vmi", "nocpu")
    assert "spec.domain.cpu.model" in text
    assert "nosuchmodel" in text


def test_missing_secret_of_user_data_is_named_and_awaited(space: Space) -> None:
    """The VMI says which Secret it waits for, and starts when it comes."""
    space.apply(with_volume(vmi("nosecret"), "cloudinit", {"cloudInitNoCloud": {"secretRef": {"name": "late"}}}))
    said = f"there is no Secret {space.namespace}/late"
    eventually(lambda: said in space.virtctl("explain", "vmi", "nosecret"), within_s=30)
    space.kubectl("create", "secret", "generic", "late", "--from-literal=userdata=#cloud-config\n")
    space.ready("nosecret")


def test_no_node_fits_is_said(space: Space) -> None:
    space.apply(kernel_boot("choosy", nodeSelector={"disk": "none-such"}))
    huge = kernel_boot("huge")
    huge["spec"]["domain"]["memory"]["guest"] = "900Gi"
    space.apply(huge)
    eventually(lambda: "node affinity/selector" in space.virtctl("explain", "vmi", "choosy"), within_s=30)
    eventually(lambda: "Insufficient memory" in space.virtctl("explain", "vmi", "huge"), within_s=30)


def test_kernel_missing_in_the_image_fails_with_its_path(space: Space) -> None:
    space.apply(kernel_boot("nokernel", kernel="/boot/nothing-here"))
    failed = space.phase("nokernel", "Failed", within_s=60)
    text = space.virtctl("explain", "vmi", "nokernel")
    assert "/boot/nothing-here" in text, failed["status"]
    assert "/boot/nothing-here" in " ".join(c.get("message", "") for c in failed["status"]["conditions"])
