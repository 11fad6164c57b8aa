"""An instance type onto a machine."""

from __future__ import annotations

from typing import Any

import pytest
from framework.instancetypes import habit, size, spec

from virt_core.apis.base import encode
from virt_core.apis.meta import ObjectMeta
from virt_core.instancetype import apply

FULL = {
    "nodeSelector": {"disk": "ssd"},
    "schedulerName": "mine",
    "cpu": {
        "model": "Nehalem",
        "dedicatedCPUPlacement": True,
        "isolateEmulatorThread": True,
        "numa": {"guestMappingPassthrough": {}},
        "realtime": {"mask": "0"},
        "maxSockets": 9,
    },
    "memory": {"hugepages": {"pageSize": "2Mi"}, "maxGuest": "4Gi"},
    "gpus": [{"name": "g", "deviceName": "d"}],
    "hostDevices": [{"name": "h", "deviceName": "d"}],
    "ioThreadsPolicy": "auto",
    "ioThreads": {"supplementalPoolThreadCount": 4},
    "launchSecurity": {"sev": {}},
    "annotations": {"a": "1"},
}


def test_everything_is_applied() -> None:
    target, meta = spec(), ObjectMeta(annotations={"b": "2"})
    assert apply(target, meta, size(4, "2Gi", **FULL), None) == []
    domain = target.domain
    assert domain.cpu is not None
    assert (domain.cpu.sockets, domain.cpu.cores, domain.cpu.threads) == (4, 1, 1)
    assert (domain.cpu.model, domain.cpu.dedicated_cpu_placement, domain.cpu.max_sockets) == ("Nehalem", True, 9)
    assert domain.cpu.isolate_emulator_thread
    assert domain.cpu.numa is not None
    assert domain.cpu.realtime is not None
    assert domain.memory is not None
    assert (domain.memory.guest, domain.memory.max_guest) == ("2Gi", "4Gi")
    assert domain.memory.hugepages is not None
    assert (target.node_selector, target.scheduler_name) == ({"disk": "ssd"}, "mine")
    assert (domain.io_threads_policy, domain.devices.gpus[0].name, domain.devices.host_devices[0].name) == (
        "auto", "g", "h",
    )  # fmt: skip
    assert domain.io_threads is not None
    assert domain.launch_security is not None
    assert meta.annotations == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("given", "wanted", "path"),
    [
        ({"domain": {"devices": {}, "cpu": {"sockets": 1}}}, {}, "domain.cpu.sockets"),
        ({"domain": {"devices": {}, "cpu": {"cores": 1}}}, {}, "domain.cpu.cores"),
        ({"domain": {"devices": {}, "cpu": {"threads": 1}}}, {}, "domain.cpu.threads"),
        ({"domain": {"devices": {}, "cpu": {"model": "x"}}}, FULL, "domain.cpu.model"),
        ({"domain": {"devices": {}, "cpu": {"dedicatedCpuPlacement": True}}}, FULL, "domain.cpu.dedicatedCPUPlacement"),
        ({"domain": {"devices": {}, "cpu": {"isolateEmulatorThread": True}}}, FULL, "domain.cpu.isolateEmulatorThread"),
        ({"domain": {"devices": {}, "cpu": {"numa": {}}}}, FULL, "domain.cpu.numa"),
        ({"domain": {"devices": {}, "cpu": {"realtime": {}}}}, FULL, "domain.cpu.realtime"),
        ({"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}, {}, "domain.memory.guest"),
        ({"domain": {"devices": {}, "memory": {"maxGuest": "1Gi"}}}, FULL, "domain.memory.maxGuest"),
        ({"domain": {"devices": {}, "memory": {"hugepages": {}}}}, FULL, "domain.memory.hugepages"),
        ({"domain": {"devices": {}, "resources": {"requests": {"cpu": "1"}}}}, {}, "domain.resources.requests.cpu"),
        ({"domain": {"devices": {}, "resources": {"limits": {"cpu": "1"}}}}, {}, "domain.resources.limits.cpu"),
        (
            {"domain": {"devices": {}, "resources": {"requests": {"memory": "1"}}}},
            {},
            "domain.resources.requests.memory",
        ),
        ({"domain": {"devices": {}, "resources": {"limits": {"memory": "1"}}}}, {}, "domain.resources.limits.memory"),
        ({"domain": {"devices": {}, "ioThreadsPolicy": "shared"}}, FULL, "domain.ioThreadsPolicy"),
        ({"domain": {"devices": {}, "ioThreads": {}}}, FULL, "domain.ioThreads"),
        ({"domain": {"devices": {}, "launchSecurity": {}}}, FULL, "domain.launchSecurity"),
        ({"domain": {"devices": {"gpus": [{"name": "x"}]}}}, FULL, "domain.devices.gpus"),
        ({"domain": {"devices": {"hostDevices": [{"name": "x"}]}}}, FULL, "domain.devices.hostDevices"),
        ({"nodeSelector": {"a": "b"}}, FULL, "nodeSelector"),
        ({"schedulerName": "x"}, FULL, "schedulerName"),
    ],
)
def test_what_both_set_is_a_conflict_and_nothing_is_applied(
    given: dict[str, Any], wanted: dict[str, Any], path: str
) -> None:
    target, meta = spec(**given), ObjectMeta()
    before = encode(target)
    found = apply(target, meta, size(2, **wanted), habit(preferredSubdomain="x"))
    assert [conflict.field for conflict in found] == [f"spec.template.spec.{path}"]
    assert encode(target) == before
    assert meta.annotations == {}


@pytest.mark.parametrize(
    "given",
    [
        {"domain": {"devices": {}, "cpu": {"model": "x", "dedicatedCpuPlacement": True, "features": [{"name": "f"}]}}},
        {"domain": {"devices": {"gpus": [{"name": "x"}]}, "ioThreadsPolicy": "auto"}},
        {"domain": {"devices": {}, "memory": {"hugepages": {"pageSize": "2Mi"}, "maxGuest": "8Gi"}}},
        {"nodeSelector": {"a": "b"}, "schedulerName": "x"},
    ],
)
def test_what_the_instance_type_leaves_open_is_the_authors(given: dict[str, Any]) -> None:
    target = spec(**given)
    assert apply(target, ObjectMeta(), size(2), None) == []
    for key, value in given.items():
        if key != "domain":
            assert getattr(target, {"nodeSelector": "node_selector", "schedulerName": "scheduler_name"}[key]) == value
    if "gpus" in given.get("domain", {}).get("devices", {}):
        assert target.domain.devices.gpus[0].name == "x"


def test_every_conflict_is_told() -> None:
    target = spec(domain={"devices": {}, "cpu": {"cores": 2, "threads": 2}, "memory": {"guest": "1Gi"}})
    assert len(apply(target, ObjectMeta(), size(2), None)) == 3


def test_annotations_conflict_only_when_they_differ() -> None:
    wanted = size(2, annotations={"a": "1"})
    assert apply(spec(), ObjectMeta(annotations={"a": "1"}), wanted, None) == []
    found = apply(spec(), ObjectMeta(annotations={"a": "2"}), wanted, None)
    assert [conflict.field for conflict in found] == ["annotations.a"]


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, None), (50, "1Gi"), (15, str((2 << 30) * 85 // 100)), (100, "0")]
)
def test_overcommit_books_less_than_the_guest_sees(percent: int, expected: str | None) -> None:
    target = spec()
    apply(target, ObjectMeta(), size(1, "2Gi", memory={"overcommitPercent": percent}), None)
    assert target.domain.memory is not None
    assert target.domain.memory.guest == "2Gi"
    assert target.domain.resources.requests.get("memory") == expected


def test_the_instance_type_is_not_shared_with_the_machine() -> None:
    wanted = size(2, **FULL)
    before = encode(wanted)
    target = spec()
    apply(target, ObjectMeta(), wanted, None)
    target.node_selector["x"] = "y"
    target.domain.devices.gpus[0].name = "changed"
    assert encode(wanted) == before


def test_the_preference_decides_about_the_topology() -> None:
    target = spec()
    apply(target, ObjectMeta(), size(4), habit(cpu={"preferredCPUTopology": "cores"}))
    assert target.domain.cpu is not None
    assert (target.domain.cpu.sockets, target.domain.cpu.cores) == (1, 4)


def test_a_spread_that_does_not_fit_is_a_conflict() -> None:
    found = apply(spec(), ObjectMeta(), size(3), habit(cpu={"preferredCPUTopology": "spread"}))
    assert [conflict.field for conflict in found] == ["instancetype.spec.cpu.guest"]
