"""Disks of VMs as a metric: KubeVirt's name and labels, and what the claims ask for."""

from __future__ import annotations

from typing import Any

from framework.reference_metrics import OF_DISKS

from virt_controller.vm.figures import DiskFigures
from virt_core.apis.base import from_plain
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.runtime.metrics import Family

CLAIM = {"persistentVolumeClaim": {"claimName": "kept"}}


class Vms:
    def __init__(self, *volumes: dict[str, Any]) -> None:
        given = [{"name": f"v{number}", **volume} for number, volume in enumerate(volumes)]
        spec = {"template": {"spec": {"domain": {"devices": {}}, "volumes": given}}}
        self._vm = from_plain({"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec}, VirtualMachine)

    def list(self) -> list[VirtualMachine]:
        return [self._vm]


class Claims:
    def __init__(self, **specs: dict[str, Any]) -> None:
        self._found = {f"ns/{name}": from_plain({"spec": spec}, PersistentVolumeClaim) for name, spec in specs.items()}

    def get(self, key: str) -> PersistentVolumeClaim | None:
        return self._found.get(key)


def asks(size: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"storage": size}}, **more}


def family(vms: Vms, claims: Claims) -> Family:
    (found,) = DiskFigures(vms, claims).collect()
    return found


def test_name_type_and_labels_are_those_of_the_reference() -> None:
    found = family(Vms(), Claims())
    assert {found.name: (found.kind, found.labels)} == OF_DISKS


def test_a_disk_has_the_size_that_its_claim_asks_for() -> None:
    vms = Vms(CLAIM, {"dataVolume": {"name": "made"}}, {"memoryDump": {"claimName": "dumped"}})
    claims = Claims(kept=asks("1Gi"), made=asks("2Gi", volumeMode="Block"), dumped=asks("3Mi"))
    assert family(vms, claims).samples == [
        (("vm", "ns", "kept", "Filesystem", "v0"), float(1 << 30)),
        (("vm", "ns", "made", "Block", "v1"), float(2 << 30)),
        (("vm", "ns", "dumped", "Filesystem", "v2"), float(3 << 20)),
    ]


def test_what_has_no_claim_has_no_size() -> None:
    vms = Vms(CLAIM, {"containerDisk": {"image": "guest:v1"}}, {"emptyDisk": {"capacity": "1Gi"}})
    assert family(vms, Claims(other=asks("1Gi"))).samples == []
