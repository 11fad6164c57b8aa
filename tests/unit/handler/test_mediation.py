"""Mediated devices are made and taken away as the cluster's configuration says, on a made-up sysfs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from virt_core.kube.configvalues import ClusterConfig
from virt_core.runtime.clock import FakeClock
from virt_handler.node.devices.mediation import MOST, Making, Plan, plan, uuid_of, wanted_types
from virt_handler.node.devices.mediator import CHECKPOINT, GRACE_S, Mediator, given_devices, write_once
from virt_handler.node.devices.permitted import permitted_pools
from virt_handler.node.devices.sysfs import Card, CardType, cards
from virt_handler.node.devices.units import Host, UnitGoneError

T4, OTHER = "0000:65:00.0", "0000:b3:00.0"
FOREIGN = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"


def kind(type_id: str, available: int, *devices: str, name: str = "") -> CardType:
    return CardType(type_id, name or type_id, available, devices)


def made(found: Plan) -> list[tuple[str, str]]:
    return [(each.card, each.type_id) for each in found.make]


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        (None, ()),
        ({"mediatedDeviceTypes": ["nvidia-222", "GRID T4-1Q", "nvidia-222"]}, ("nvidia-222", "GRID_T4-1Q")),
        ({"mediatedDevicesTypes": ["old"]}, ("old",)),
        ({"mediatedDeviceTypes": ["a"], "enabled": False}, None),
        (
            {
                "mediatedDeviceTypes": ["a"],
                "nodeMediatedDeviceTypes": [
                    {"nodeSelector": {"gpu": "t4"}, "mediatedDeviceTypes": ["b"]},
                    {"nodeSelector": {"zone": "1"}, "mediatedDevicesTypes": ["c", "b"]},
                    {"nodeSelector": {"zone": "2"}, "mediatedDeviceTypes": ["d"]},
                ],
            },
            ("b", "c"),
        ),
        (
            {
                "mediatedDeviceTypes": ["a"],
                "nodeMediatedDeviceTypes": [{"nodeSelector": {"zone": "2"}, "mediatedDeviceTypes": ["d"]}],
            },
            ("a",),
        ),
    ],
)
def test_types_of_this_node_go_before_those_of_all(configuration: Any, expected: tuple[str, ...] | None) -> None:
    assert wanted_types(configuration, {"gpu": "t4", "zone": "1"}) == expected


def test_who_says_hands_off_or_does_not_know_the_node_changes_nothing() -> None:
    given = {"mediatedDeviceTypes": ["a"]}
    assert wanted_types(given, {}, frozenset({"DisableMDEVConfiguration"})) is None
    assert wanted_types(given, None) is None


def test_a_card_is_filled_with_one_type() -> None:
    card = Card(T4, (kind("nvidia-222", 3, name="GRID_T4-1B"), kind("nvidia-223", 2)))
    found = plan([card], ["GRID_T4-1B", "nvidia-223"])
    assert found == Plan(tuple(Making(T4, "nvidia-222", uuid_of(T4, "nvidia-222", n)) for n in range(3)))
    assert plan([card], ["of-another-vendor"]) == Plan()


def test_types_take_turns_among_cards() -> None:
    def card(number: int) -> Card:
        return Card(f"c{number}", (kind("a", 1), kind("b", 1)))

    assert made(plan([card(0), card(1), card(2)], ["b", "a"])) == [("c0", "b"), ("c1", "a"), ("c2", "b")]
    busy = Card("c0", (kind("a", 0), kind("b", 0, uuid_of("c0", "b", 0))))
    assert made(plan([busy, card(1)], ["b", "a"])) == [("c1", "a")]


def test_a_card_that_has_some_gets_the_rest_of_the_same() -> None:
    here = uuid_of(T4, "a", 1)
    found = plan([Card(T4, (kind("a", 2, here), kind("b", 0)))], ["b", "a"])
    assert [each.uuid for each in found.make] == [uuid_of(T4, "a", 0), uuid_of(T4, "a", 2)]
    assert not found.remove


def test_what_is_not_wanted_any_more_goes_before_the_next_comes() -> None:
    ours = uuid_of(T4, "a", 0)
    assert plan([Card(T4, (kind("a", 1, ours), kind("b", 0)))], ["b"]) == Plan(remove=(ours,))
    assert made(plan([Card(T4, (kind("a", 2), kind("b", 2)))], ["b"])) == [(T4, "b"), (T4, "b")]
    assert plan([Card(T4, (kind("a", 1, ours),))], []).remove == (ours,)


def test_a_card_of_somebody_else_is_left_alone() -> None:
    ours = uuid_of(T4, "a", 0)
    assert plan([Card(T4, (kind("a", 3, FOREIGN),))], ["a"]) == Plan()
    assert plan([Card(T4, (kind("a", 3, FOREIGN, ours),))], []) == Plan()
    # The number of a device of another card proves nothing.
    assert plan([Card(T4, (kind("a", 3, uuid_of(OTHER, "a", 0)),))], []) == Plan()


def test_a_driver_that_promises_anything_is_not_believed() -> None:
    assert len(plan([Card(T4, (kind("a", 10**9),))], ["a"]).make) == MOST


class Kernel:
    """Cards of which each type has so many devices; does what writes to sysfs ask for."""

    def __init__(self, root: Path, **room: int) -> None:
        self.root, self.group = root, 40
        for type_id, number in room.items():
            types = root / "sys/class/mdev_bus" / T4 / "mdev_supported_types" / type_id
            (types / "devices").mkdir(parents=True)
            (types / "available_instances").write_text(f"{number}\n")
            (types / "name").write_text(f"GRID {type_id}\n")
        (root / "sys/bus/mdev/devices").mkdir(parents=True)
        (root / "dev/vfio").mkdir(parents=True)
        (root / "dev/vfio/vfio").symlink_to("/dev/null")
        self.fail = 0

    def write(self, path: str, text: str) -> None:
        if self.fail:
            raise OSError(self.fail, os.strerror(self.fail))
        at = Path(path)
        if at.name == "create":
            self._create(at.parent, text)
        else:
            self._remove(at.parent.name)

    def _types(self) -> list[Path]:
        return sorted((self.root / "sys/class/mdev_bus" / T4 / "mdev_supported_types").iterdir())

    def _create(self, types: Path, name: str) -> None:
        left = int((types / "available_instances").read_text())
        assert left > 0
        self.group += 1
        entry = self.root / "sys/bus/mdev/devices" / name
        entry.mkdir()
        (entry / "mdev_type").symlink_to(types)
        (entry / "iommu_group").symlink_to(f"../groups/{self.group}")
        (self.root / f"dev/vfio/{self.group}").symlink_to("/dev/null")
        (types / "devices" / name).symlink_to(entry)
        (types / "available_instances").write_text(str(left - 1))

    def _remove(self, name: str) -> None:
        entry = self.root / "sys/bus/mdev/devices" / name
        types = (entry / "mdev_type").resolve()
        (types / "devices" / name).unlink()
        (types / "available_instances").write_text(str(int((types / "available_instances").read_text()) + 1))
        shutil.rmtree(entry)

    def devices(self) -> dict[str, int]:
        return {types.name: len(list((types / "devices").iterdir())) for types in self._types()}


class Rig:
    def __init__(self, root: Path) -> None:
        self.kernel = Kernel(root, a=2, b=3)
        self.clock = FakeClock()
        self.host = Host(str(root))
        self.plugins = root / "plugins"
        self.plugins.mkdir()
        self.mediator = Mediator(self.host, self.clock, str(self.plugins), dict, self.kernel.write)

    def settle(self, *types: str, **more: Any) -> float | None:
        raw = {"mediatedDevicesConfiguration": {"mediatedDeviceTypes": list(types)}}
        return self.mediator.settle(ClusterConfig(raw=raw, **more))

    def pool(self) -> Any:
        permitted = {"mediatedDevices": [{"mdevNameSelector": "GRID a", "resourceName": "example.com/a"}]}
        config = ClusterConfig(permitted_host_devices=permitted)
        return permitted_pools(config, self.host, self.mediator.withheld)["example.com/a"]

    def give(self, *devices: str, text: str = "") -> None:
        entry = {"PodUID": "u", "ContainerName": "compute", "ResourceName": "r", "DeviceIDs": {"-1": list(devices)}}
        record = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1}
        (self.plugins / CHECKPOINT).write_text(text or json.dumps(record))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_devices_are_made_offered_and_replaced(rig: Rig) -> None:
    assert rig.settle("a") is None
    assert rig.kernel.devices() == {"a": 2, "b": 0}
    pool = rig.pool()
    assert [unit.healthy for unit in pool.look()] == [True, True]
    assert rig.settle("GRID b") == GRACE_S
    # Still there, and nobody's any more.
    assert [unit.healthy for unit in pool.look()] == [False, False]
    with pytest.raises(UnitGoneError):
        pool.allot([pool.look()[0].id])
    assert rig.kernel.devices() == {"a": 2, "b": 0}
    rig.clock.step(GRACE_S)
    rig.settle("GRID b")
    assert rig.kernel.devices() == {"a": 0, "b": 0}
    assert rig.settle("GRID b") is None
    assert rig.kernel.devices() == {"a": 0, "b": 3}


def test_what_a_pod_was_given_stays_until_it_is_gone(rig: Rig) -> None:
    rig.settle("a")
    used, _ = (device for each in cards(rig.host.path("/sys")) for device in each.types[0].devices)
    rig.give(used)
    rig.settle()
    rig.clock.step(GRACE_S)
    assert rig.settle() == GRACE_S
    assert rig.kernel.devices() == {"a": 1, "b": 0}
    assert used in rig.mediator.withheld
    rig.give()
    rig.settle()
    assert rig.kernel.devices() == {"a": 0, "b": 0}


def test_what_a_process_has_open_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.settle("a")
    rig.settle()
    rig.clock.step(GRACE_S)
    opened = os.open

    def busy(path: str, flags: int, *more: Any) -> int:
        if "/dev/vfio/" in str(path):
            raise OSError(16, "Device or resource busy")
        return opened(path, flags, *more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", busy)
        rig.settle()
    assert rig.kernel.devices() == {"a": 2, "b": 0}
    rig.settle()
    assert rig.kernel.devices() == {"a": 0, "b": 0}


@pytest.mark.parametrize("text", ["{", "[]", '{"Data": {"PodDeviceEntries": [{"DeviceIDs": 7}]}}', "null"])
def test_a_record_that_is_not_understood_keeps_everything(rig: Rig, text: str) -> None:
    rig.settle("a")
    rig.give(text=text)
    rig.settle()
    rig.clock.step(GRACE_S)
    rig.settle()
    assert rig.kernel.devices() == {"a": 2, "b": 0}


def test_the_kubelets_older_record_is_understood() -> None:
    record = {"Data": {"PodDeviceEntries": [{"DeviceIDs": ["x"]}, {"DeviceIDs": {"0": ["y"], "1": ["z"]}}]}}
    assert given_devices(json.dumps(record).encode()) == {"x", "y", "z"}
    assert given_devices(b'{"Data": {"PodDeviceEntries": null}}') == frozenset()


def test_a_change_of_mind_gives_them_back(rig: Rig) -> None:
    rig.settle("a")
    rig.settle("b")
    rig.settle("a")
    rig.clock.step(GRACE_S)
    rig.settle("a")
    assert not rig.mediator.withheld
    assert rig.kernel.devices() == {"a": 2, "b": 0}
    rig.settle("b")
    rig.settle("b", feature_gates=frozenset({"DisableMDEVConfiguration"}))
    assert not rig.mediator.withheld


def test_a_driver_that_refuses_is_asked_again_later(rig: Rig) -> None:
    rig.kernel.fail = 5
    rig.settle("a")
    assert rig.kernel.devices() == {"a": 0, "b": 0}
    rig.kernel.fail = 0
    rig.settle("a")
    assert rig.kernel.devices() == {"a": 2, "b": 0}


def test_sysfs_gets_one_write(tmp_path: Path) -> None:
    file = tmp_path / "create"
    file.write_text("")
    write_once(str(file), FOREIGN)
    assert file.read_text() == FOREIGN
    with pytest.raises(FileNotFoundError):
        write_once(str(tmp_path / "none"), "1")
