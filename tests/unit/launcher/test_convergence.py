"""Whatever is plugged into a machine: the changes lead to what is wanted, and nothing else is touched."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.launcher.cases import Case
from tests.unit.launcher.machines import changed, named, started, wanted
from virt_launcher.converge.changes import Change, DeviceChange, NeedsRestart
from virt_launcher.converge.difference import difference
from virt_launcher.domain.domain import Domain

SETTINGS = settings(max_examples=60, deadline=None)
NAMES = "abcdef"
#: Enough for all that may come.
PORTS = {"kubevirt.io/pci-interface-slot-count": "20"}
#: What the machine is started with stays in all that is wanted of it; the rest comes and goes.
FIRST = {"root": {"name": "root", "disk": {"bus": "virtio"}}, "cd": {"name": "cd", "cdrom": {"bus": "sata"}}}


@st.composite
def machines(draw: st.DrawFn) -> Case:
    """Disks, NICs with link states and a CD-ROM drive with or without a medium, listed in any order."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    # The bus belongs to the name: a disk that moves to another one is another disk.
    disks = [{"name": name, "disk": {"bus": "scsi" if name < "c" else "virtio"}} for name in names]
    disks = draw(st.permutations([*FIRST.values(), *disks]))
    nics = draw(st.lists(st.sampled_from(NAMES), unique=True))
    first = {"name": "first", "bridge": {}, "state": draw(st.sampled_from(["", "up", "down"]))}
    cards: list[dict[str, Any]] = [{"name": name, "bridge": {}} for name in nics]
    for card in cards:
        card["state"] = draw(st.sampled_from(["", "up", "down"]))
    filled = [d["name"] for d in disks if d["name"] != "cd" or draw(st.booleans())]
    volumes = [{"name": name, "emptyDisk": {"capacity": "1Gi"}} for name in draw(st.permutations(filled))]
    return case(disks, draw(st.permutations([first, *cards])), volumes)


def case(disks: list[Any], nics: list[Any], volumes: list[Any]) -> Case:
    devices = {"disks": disks, "interfaces": nics}
    return Case(domain={"devices": devices}, spec={"volumes": volumes}, annotations=PORTS)


def running() -> Domain:
    volumes = [{"name": name, "emptyDisk": {"capacity": "1Gi"}} for name in FIRST]
    return started(case(list(FIRST.values()), [{"name": "first", "bridge": {}}], volumes))


def step(live: Domain, target: Case) -> tuple[tuple[Change, ...], Domain]:
    changes = difference(wanted(target, live), live)
    return changes, changed(live, changes)


@SETTINGS
@given(st.lists(machines(), min_size=1, max_size=4))
def test_every_change_arrives_and_is_not_made_twice(targets: list[Case]) -> None:
    live = running()
    for target in targets:
        changes, live = step(live, target)
        assert not [change for change in changes if isinstance(change, NeedsRestart)]
        assert step(live, target)[0] == ()
        for slot, spec in (("disks", "disks"), ("interfaces", "interfaces")):
            assert {*named(live, slot)} == {device["name"] for device in target.domain["devices"][spec]}
        assert medium(live) == any(volume["name"] == "cd" for volume in target.spec["volumes"])
        assert links(live) == {n["name"]: n["state"] == "down" for n in target.domain["devices"]["interfaces"]}


@SETTINGS
@given(st.lists(machines(), min_size=2, max_size=4))
def test_what_stays_keeps_its_identity(targets: list[Case]) -> None:
    live = running()
    for target in targets:
        changes, later = step(live, target)
        touched = {change.name for change in changes if isinstance(change, DeviceChange)}
        for slot in ("disks", "interfaces"):
            before, after = named(live, slot), named(later, slot)
            assert {n: after[n] for n in before if n in after} == {n: before[n] for n in before if n in after}
            assert touched >= before.keys() ^ after.keys()
        targets_of = [target for target, _address in named(later, "disks").values()]
        assert len(targets_of) == len(set(targets_of))
        live = later


@SETTINGS
@given(machines(), st.randoms())
def test_the_order_of_the_lists_does_not_matter(target: Case, random: Any) -> None:
    _changes, live = step(running(), target)
    devices = target.domain["devices"]
    shuffled = [[*listed] for listed in (devices["disks"], devices["interfaces"], target.spec["volumes"])]
    for listed in shuffled:
        random.shuffle(listed)
    assert step(live, case(*shuffled))[0] == ()


def medium(live: Domain) -> bool:
    return next(disk for disk in live.devices.disks if disk.alias == "ua-cd").source_file is not None


def links(live: Domain) -> dict[str, bool]:
    return {(nic.alias or "").removeprefix("ua-"): nic.link == "down" for nic in live.devices.interfaces}
