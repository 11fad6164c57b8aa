"""The difference between the machine that is wanted and the one that runs."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.launcher.cases import CASES, ON_ROOT, ROOT, Case, context_of, disk, empty
from tests.unit.launcher.machines import changed, named, started, wanted
from virt_launcher.converge.changes import Act, Change, DeviceChange, MoreProcessors, NeedsRestart
from virt_launcher.converge.difference import difference
from virt_launcher.convert import firmware
from virt_launcher.convert.converter import convert
from virt_launcher.disks.sources import BlockSizes, DiskSource
from virt_launcher.domain.devices import Address, Watchdog
from virt_launcher.domain.domain import Domain, from_xml


def machine(disks: list[dict[str, Any]], nics: list[dict[str, Any]] | None = None, **domain: Any) -> Case:
    volumes = [ROOT if d["name"] == "root" else empty(d["name"])[0] for d in disks if not d.get("empty")]
    plain = [{key: value for key, value in d.items() if key != "empty"} for d in disks]
    return Case(domain={"devices": {"disks": plain, "interfaces": nics or []}} | domain, spec={"volumes": volumes})


def nic(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "bridge": {}} | more


def between(before: Case, after: Case) -> tuple[Change, ...]:
    live = started(before)
    return difference(wanted(after, live), live)


def told(changes: tuple[Change, ...]) -> list[str]:
    return [f"restart {c.field}" if isinstance(c, NeedsRestart) else f"{c.what} {c.act.value}" for c in changes]


@pytest.fixture(autouse=True)
def _image_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firmware, "is_there", lambda _path: True)
    monkeypatch.setattr("virt_launcher.convert.devices.shutil.which", lambda *_, **__: "/usr/bin/swtpm")


@pytest.mark.parametrize("name", CASES)
def test_a_machine_that_nobody_changed_has_none(name: str) -> None:
    assert between(CASES[name], CASES[name]) == ()


def test_what_libvirt_adds_to_a_real_machine_is_no_difference() -> None:
    from tests.unit.launcher.test_golden import GOLDEN

    live = from_xml((GOLDEN / "live.xml").read_text())
    assert difference(copy.deepcopy(live), live) == ()


@pytest.mark.parametrize("devices", [{}, {"watchdog": {"name": "dog", "i6300esb": {"action": "reset"}}}])
def test_the_watchdog_of_the_chipset_is_libvirts_own(devices: dict[str, Any]) -> None:
    case = Case(domain={"devices": devices})
    live = started(case)
    live.devices.watchdogs.insert(0, Watchdog(model="itco", action="reset", alias="watchdog0"))
    assert difference(wanted(case, live), live) == ()


def test_a_link_is_changed_and_nothing_else() -> None:
    up, down = machine([], [nic("a"), nic("b")]), machine([], [nic("a"), nic("b", state="down")])
    changes = between(up, down)
    assert told(changes) == ['interface "b" changed']
    [change] = changes
    assert isinstance(change, DeviceChange)
    live = started(up).devices.interfaces[1]
    assert (change.device.link, change.device.mac, change.device.address) == ("down", live.mac, live.address)
    assert told(between(down, up)) == ['interface "b" changed']


def test_a_disk_in_the_middle_renames_nobody() -> None:
    before = machine([disk("root"), disk("z", "scsi")])
    after = machine([disk("new"), disk("root"), disk("other", "scsi"), disk("z", "scsi")])
    live = started(before)
    want = wanted(after, live)
    assert {name: target for name, (target, _) in named(want, "disks").items()} == {
        "root": "vda",
        "new": "vdb",
        "z": "sda",
        "other": "sdb",
    }
    for name, identity in named(live, "disks").items():
        assert named(want, "disks")[name] == identity
    assert told(difference(want, live)) == ['disk "new" attached', 'disk "other" attached']


def buses(changes: tuple[Change, ...]) -> dict[str, str]:
    """Where new devices are put."""
    return {c.name: c.device.address.bus for c in changes if isinstance(c, DeviceChange) and c.act is Act.ATTACH}


def test_new_devices_take_the_ports_that_they_have_after_a_restart_or_leave_those_of_cards_alone() -> None:
    before = machine([disk("root")], [nic("a")])
    after = machine([disk("new"), disk("root"), disk("s", "scsi")], [nic("a"), nic("b")])
    placed = buses(between(before, after))
    assert placed == {"scsi-0": "0x05", "new": "0x09", "s": "0", "b": "0x02"}
    again = convert(context_of(after))
    assert [card.address.bus for card in again.devices.interfaces if card.address] == ["0x01", "0x02"]


def test_a_machine_takes_devices_until_its_ports_are_full() -> None:
    names = [f"d{number}" for number in range(9)]
    changes = between(machine([]), machine([disk(name) for name in names]))
    assert sorted(buses(changes).values()) == [f"0x{bus:02x}" for bus in (1, 4, 5, 6, 7, 8)]
    restarts = [change.reason for change in changes if isinstance(change, NeedsRestart)]
    assert len(restarts) == 3
    assert all("no free PCI port" in reason for reason in restarts)


def test_on_the_root_complex_nothing_comes_and_nothing_goes() -> None:
    before = replace(machine([disk("root")]), annotations=ON_ROOT)
    after = replace(machine([disk("new"), disk("s", "scsi")]), annotations=ON_ROOT)
    changes = between(before, after)
    assert all(isinstance(change, NeedsRestart) for change in changes)
    assert sorted(change.reason.split(":")[0] for change in changes if isinstance(change, NeedsRestart)) == [
        'controller "scsi-0"', 'disk "new"', 'disk "root"', 'disk "s"',
    ]  # fmt: skip


def test_what_was_there_at_the_start_goes_from_its_port() -> None:
    changes = between(machine([disk("root"), disk("d")], [nic("a"), nic("b")]), machine([disk("root")], [nic("b")]))
    assert told(changes) == ['disk "d" detached', 'interface "a" detached']


def test_the_name_of_a_disk_that_goes_is_not_given_away_yet() -> None:
    live = changed(
        started(machine([disk("root")])), between(machine([disk("root")]), machine([disk("root"), disk("a")]))
    )
    changes = difference(wanted(machine([disk("root"), disk("b")]), live), live)
    assert told(changes) == ['disk "a" detached', 'disk "b" attached']
    assert [c.device.target for c in changes if isinstance(c, DeviceChange)] == ["vdb", "vdc"]


def test_a_scsi_disk_brings_its_controller() -> None:
    changes = between(machine([disk("root")]), machine([disk("root"), disk("s", "scsi")]))
    assert told(changes) == ['controller "scsi-0" attached', 'disk "s" attached']


def test_media_come_and_go() -> None:
    drive = {"name": "cd", "cdrom": {"bus": "sata"}}
    full, bare = machine([disk("root"), drive]), machine([disk("root"), drive | {"empty": True}])
    assert told(between(full, bare)) == ['disk "cd" changed']
    assert told(between(bare, full)) == ['disk "cd" changed']
    [ejected] = between(full, bare)
    assert isinstance(ejected, DeviceChange)
    assert ejected.device.source_file is None
    assert changed_to_agree(full, bare)
    assert changed_to_agree(bare, full)


def changed_to_agree(before: Case, after: Case) -> bool:
    live = started(before)
    later = changed(live, difference(wanted(after, live), live))
    return difference(wanted(after, later), later) == ()


@pytest.mark.parametrize(
    ("before", "after", "field", "words"),
    [
        (machine([disk("s", "sata")]), machine([]), "disks", "bus sata"),
        (machine([]), machine([disk("s", "sata")]), "disks", "virtio and scsi can"),
        (machine([]), machine([{"name": "cd", "cdrom": {}, "empty": True}]), "disks", "CD-ROM drive"),
        (machine([disk("d")]), machine([disk("d", serial="7")]), "disks", "serial cannot change"),
        (machine([disk("d")]), machine([disk("d"), disk("e", dedicatedIOThread=True)]), "disks", "thread of its own"),
        (machine([], [nic("a")]), machine([], [nic("a", model="e1000")]), "interfaces", "model"),
        (machine([], [nic("a", model="e1000")]), machine([], []), "interfaces", "e1000 stays until"),
        (machine([]), machine([], [nic("a", model="e1000")]), "interfaces", "e1000 cannot be plugged"),
    ],
)
def test_what_needs_a_restart_says_why(before: Case, after: Case, field: str, words: str) -> None:
    changes = [change for change in between(before, after) if isinstance(change, NeedsRestart)]
    assert any(change.field == f"spec.domain.devices.{field}" and words in change.reason for change in changes), changes
    assert not any(isinstance(change, DeviceChange) for change in between(before, after))


@pytest.mark.parametrize(
    ("domain", "field"),
    [
        ({"memory": {"guest": "256Mi"}}, "spec.domain.memory.guest"),
        ({"memory": {"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}}}, "spec.domain.memory.hugepages"),
        ({"cpu": {"sockets": 2}}, "spec.domain.cpu.sockets"),
        ({"cpu": {"cores": 2}}, "spec.domain.cpu"),
        ({"machine": {"type": "pc"}}, "spec.domain.machine.type"),
        ({"firmware": {"serial": "s", "uuid": "6e311d7c-7bc3-4420-8f30-ea6a144a4f7b"}}, "spec.domain.firmware"),
        ({"features": {"acpi": {"enabled": False}}}, "spec.domain.features"),
        ({"features": {"smm": {}}}, "spec.domain.features"),
        ({"clock": {"timezone": "Europe/Berlin"}}, "spec.domain.clock"),
        ({"ioThreadsPolicy": "auto"}, "spec.domain.ioThreadsPolicy"),
        ({"devices": {"rng": {}}}, "spec.domain.devices.rng"),
        ({"devices": {"autoattachSerialConsole": False}}, "spec.domain.devices.autoattachSerialConsole"),
        ({"devices": {"autoattachMemBalloon": False}}, "spec.domain.devices.autoattachMemBalloon"),
        ({"devices": {"inputs": [{"name": "t", "type": "tablet", "bus": "usb"}]}}, "spec.domain.devices.inputs"),
    ],
)
def test_the_rest_of_the_machine_stays(domain: dict[str, Any], field: str) -> None:
    changes = between(Case(), Case(domain=domain))
    assert field in [change.field for change in changes if isinstance(change, NeedsRestart)], changes
    assert not any(isinstance(change, DeviceChange) for change in changes)


def test_what_the_firmware_hands_over_stays() -> None:
    for name in ("acpi-tables", "acpi-table-msdm", "ignition"):
        for before, after in ((Case(), CASES[name]), (CASES[name], Case())):
            changes = between(before, after)
            assert [c.field for c in changes if isinstance(c, NeedsRestart)] == ["spec.domain.firmware"], changes


def test_a_disk_keeps_the_block_size_that_it_was_started_with() -> None:
    """Whatever its volume has become; a new one gets its own."""
    disks = [disk("a", blockSize={"matchVolume": {}}), disk("b", blockSize={"matchVolume": {}})]

    def sized(count: int, size: int) -> Case:
        sources = {name: DiskSource(f"/{name}", "raw", blocks=BlockSizes(size, size)) for name in "ab"}
        case = machine(disks[:count])
        return replace(case, context={"sources": sources})

    [change] = between(sized(1, 512), sized(2, 4096))
    assert isinstance(change, DeviceChange)
    assert (change.what, change.act, change.device.logical_block_size) == ('disk "b"', Act.ATTACH, 4096)


def test_the_thread_of_the_scsi_disks_is_nobody_elses() -> None:
    scsi = disk("s", "scsi", dedicatedIOThread=True)
    before = machine([disk("a"), scsi], ioThreadsPolicy="shared")
    [change] = between(before, machine([disk("a"), disk("b"), scsi], ioThreadsPolicy="shared"))
    assert isinstance(change, DeviceChange)
    assert (change.what, change.device.iothread) == ('disk "b"', 1)
    late = between(machine([disk("s", "scsi")]), machine([scsi]))
    assert told(late) == ["restart spec.domain.ioThreadsPolicy", "restart spec.domain.devices"]


def test_links_first_then_what_goes_then_what_comes() -> None:
    live = started(machine([disk("root")], [nic("a")]))
    plugged = changed(live, difference(wanted(machine([disk("root"), disk("old")], [nic("a")]), live), live))
    changes = difference(wanted(machine([disk("root"), disk("new")], [nic("a", state="down")]), plugged), plugged)
    assert [c.act for c in changes if isinstance(c, DeviceChange)] == [Act.UPDATE, Act.DETACH, Act.ATTACH]


def test_a_new_disk_joins_no_thread_that_is_another_disks_own() -> None:
    before = machine([disk("a", dedicatedIOThread=True)], ioThreadsPolicy="shared")
    live = started(before)
    assert (live.iothreads, live.devices.disks[0].iothread) == (1, 1)
    after = machine([disk("a", dedicatedIOThread=True), disk("b")], ioThreadsPolicy="shared")
    [change] = difference(wanted(after, live), live)
    assert isinstance(change, DeviceChange)
    assert (change.act, change.device.iothread) == (Act.ATTACH, None)


def test_threads_stay_and_new_disks_join_the_idlest() -> None:
    pool = {"ioThreadsPolicy": "supplementalPool", "ioThreads": {"supplementalPoolThreadCount": 2}}
    live = started(machine([disk("a"), disk("b"), disk("c")], **pool))
    assert [d.iothread for d in live.devices.disks] == [1, 2, 1]
    want = wanted(machine([disk("n"), disk("c"), disk("b"), disk("a")], **pool), live)
    assert {d.alias: d.iothread for d in want.devices.disks} == {"ua-n": 2, "ua-a": 1, "ua-b": 2, "ua-c": 1}


def test_a_place_that_the_user_chose_is_kept() -> None:
    there = {"name": "n", "disk": {"bus": "virtio", "pciAddress": "0000:01:00.0"}}
    [change] = between(machine([]), machine([there]))
    assert isinstance(change, DeviceChange)
    assert change.device.address == Address(type="pci", domain="0x0000", bus="0x01", slot="0x00", function="0x0")


def test_a_machine_without_devices_wants_none() -> None:
    assert difference(Domain(), Domain()) == ()


def sockets(count: int, most: int = 4, **domain: Any) -> Case:
    return Case(domain={"cpu": {"sockets": count, "cores": 2, "maxSockets": most}} | domain)


def test_processors_come_as_long_as_there_are_sockets_for_them() -> None:
    assert between(sockets(1), sockets(3)) == (MoreProcessors(6),)
    assert changed_to_agree(sockets(1), sockets(4))


@pytest.mark.parametrize("after", [sockets(1), sockets(5), sockets(2, most=8)])
def test_processors_neither_go_nor_come_beyond_the_sockets(after: Case) -> None:
    changes = between(sockets(2), after)
    assert "spec.domain.cpu.sockets" in [change.field for change in changes if isinstance(change, NeedsRestart)]
    assert not any(isinstance(change, MoreProcessors) for change in changes)


def test_a_disk_keeps_its_queues_when_processors_come() -> None:
    devices = {"blockMultiQueue": True, "disks": [disk("root")]}
    before, after = (replace(sockets(count, devices=devices), spec={"volumes": [ROOT]}) for count in (1, 2))
    assert between(before, after) == (MoreProcessors(4),)
    assert [each.queues for each in started(after).devices.disks] == [4]


def memory(guest: str, **more: Any) -> Case:
    grows = {"guest": guest, "maxGuest": "4Gi"} | more
    return Case(domain={"memory": grows}, status={"memory": {"guestAtBoot": "1Gi"}})


def requested(changes: tuple[Change, ...]) -> list[tuple[str, int]]:
    return [(c.act.value, c.device.requested.value >> 10) for c in changes if isinstance(c, DeviceChange)]


def test_memory_comes_with_a_device_and_stays_with_it() -> None:
    changes = between(memory("1Gi"), memory("2Gi"))
    assert requested(changes) == [("attached", 1024)]
    [change] = changes
    assert isinstance(change, DeviceChange)
    assert change.device.address.bus != "0x00"
    assert requested(between(memory("2Gi"), memory("3Gi"))) == [("changed", 2048)]
    assert requested(between(memory("3Gi"), memory("1Gi"))) == [("changed", 0)]
    for before, after in (("1Gi", "2Gi"), ("2Gi", "4Gi"), ("4Gi", "1Gi")):
        assert changed_to_agree(memory(before), memory(after))


def test_memory_stays_where_the_guest_sees_it() -> None:
    """libvirt 11 tells the address, and refuses a change that is silent about it."""
    live = started(memory("2Gi"))
    [device] = live.devices.memories
    live.devices.memories = [replace(device, base="0x100000000")]
    [change] = difference(wanted(memory("1Gi"), live), live)
    assert isinstance(change, DeviceChange)
    assert change.device.base == "0x100000000"


def test_a_machine_without_a_limit_keeps_its_memory() -> None:
    changes = between(Case(domain={"memory": {"guest": "1Gi"}}), Case(domain={"memory": {"guest": "2Gi"}}))
    assert told(changes) == ["restart spec.domain.memory.guest"]
