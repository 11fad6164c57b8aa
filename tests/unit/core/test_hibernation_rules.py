"""Which machines can be saved, and what a saved state is bound to."""

from __future__ import annotations

from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.hibernation import digest, obstacle, resumption
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec


def spec(devices: dict[str, Any] | None = None, *volumes: dict[str, Any], **more: Any) -> VirtualMachineInstanceSpec:
    body = {"domain": {"devices": devices or {}}, "volumes": list(volumes), **more}
    return from_plain(body, VirtualMachineInstanceSpec)


IMAGE = {"name": "root", "containerDisk": {"image": "guest:v1"}}
CLAIM = {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}


@pytest.mark.parametrize(
    "found",
    [
        spec(None, CLAIM),
        spec(None, {"name": "root", "dataVolume": {"name": "disk"}}, {"name": "init", "cloudInitNoCloud": {}}),
        spec({"disks": [{"name": "root", "cdrom": {}}]}, IMAGE),
        spec({"tpm": {"persistent": True}}),
        spec({"interfaces": [{"name": "default", "masquerade": {}}]}),
    ],
)
def test_machines_on_claims_can_be_saved(found: VirtualMachineInstanceSpec) -> None:
    assert obstacle(found) == ""


@pytest.mark.parametrize(
    ("found", "path"),
    [
        (spec({"disks": [{"name": "root", "disk": {}}]}, IMAGE), "spec.volumes[root]"),
        (spec(None, {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}}), "spec.volumes[scratch]"),
        (
            spec(None, {"name": "new", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}),
            "volumes[new]",
        ),
        (spec({"tpm": {}}), "tpm.persistent"),
        (spec({"gpus": [{"name": "g", "deviceName": "d"}]}), "devices.gpus"),
        (spec({"filesystems": [{"name": "f", "virtiofs": {}}]}), "devices.filesystems"),
        (spec({"interfaces": [{"name": "fast", "sriov": {}}]}), "interfaces[fast]"),
        (spec({"autoattachVSOCK": True}), "autoattachVSOCK"),
        (spec(livenessProbe={"tcpSocket": {"port": 80}}), "spec.livenessProbe"),
    ],
)
def test_others_are_refused_by_the_fields_path(found: VirtualMachineInstanceSpec, path: str) -> None:
    assert path in obstacle(found)


def test_a_state_is_bound_to_the_machine_and_not_to_its_place() -> None:
    plain = spec(None, CLAIM)
    assert digest(plain) == digest(spec(None, CLAIM, nodeSelector={"zone": "a"}))
    assert digest(plain) != digest(spec({"disks": [{"name": "root", "disk": {}}]}, CLAIM))
    assert digest(plain) != digest(spec(None, {"name": "root", "persistentVolumeClaim": {"claimName": "other"}}))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"claim":"c","file":"x"}',
        '{"claim":"","file":"a.machine.state"}',
        '{"claim":"c","file":"../a.machine.state"}',
    ],
)
def test_what_names_no_state_is_refused(text: str) -> None:
    made = from_plain({"metadata": {"annotations": {"virtpod.io/resume-from": text}}}, VirtualMachineInstance)
    with pytest.raises(ValueError, match=r"virtpod\.io/resume-from"):
        resumption(made)
