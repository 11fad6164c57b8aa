"""A guest that counts in its memory is put to sleep and wakes up: it goes on counting, on the bytes that it left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from .conftest import Space
from .console import Console
from .engine import eventually
from .loopdisks import claim
from .test_storage import shell, stored, sum_of, with_claim, write_blocks  # noqa: F401
from .vms import Machine, conditions, vm

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

#: A process that lives in the guest's memory alone.
COUNTER = "(n=0; while :; do n=$((n+1)); echo $n > /tmp/count; sleep 1; done) & true"


def count(console: Console) -> int:
    found = re.search(r"count-is-(\d+)-", console.shell("echo count-is-$(cat /tmp/count)-"))
    assert found is not None, console.seen[-500:]
    return int(found.group(1))


def begin(space: Space, name: str) -> tuple[str, int]:
    """Starts to count. The guest's boot, and how far it is."""
    with space.console(name) as console:
        console.prompt()
        console.shell(COUNTER)
        eventually(lambda: count(console) >= 3, within_s=60, what="the guest counts")
        return console.boot_id(), count(console)


def goes_on(space: Space, name: str, boot: str, before: int) -> int:
    """The same boot of the guest counts on from there. How far it is now."""
    with space.console(name) as console:
        console.prompt()
        assert console.boot_id() == boot
        first = count(console)
        assert first >= before
        eventually(lambda: count(console) > first, within_s=60, what="the guest goes on counting")
        return count(console)


def state(space: Space, name: str) -> dict[str, Any]:
    return dict(space.engine.get("-n", space.namespace, "vm", name)["status"].get("hibernation") or {})


def reaches(space: Space, name: str, phase: str) -> dict[str, Any]:
    try:
        eventually(lambda: state(space, name).get("phase") == phase, within_s=120, what=f"the state is {phase}")
    except AssertionError as error:
        told = space.engine.run("virtctl", "-n", space.namespace, "explain", "vm", name)
        raise AssertionError(f"{error}: {state(space, name)} {told.stdout}") from None
    return state(space, name)


def wake(machine: Machine) -> None:
    machine.virtctl("start")
    reaches(machine.space, machine.name, "Resumed")
    machine.printable("Running")


def counting(space: Space, name: str, strategy: str = "Always") -> Machine:
    claim(space, f"disk-of-{name}", "32Mi")
    space.apply(with_claim(vm(name, strategy), f"disk-of-{name}"))
    machine = Machine(space, name)
    if strategy == "Manual":
        machine.virtctl("start")
    machine.printable("Running")
    return machine


def on_disk(space: Space, name: str) -> str:
    """The sum of what is on the disk, not of what the guest remembers of it."""
    shell(space, name, "sync; echo 3 > /proc/sys/vm/drop_caches")
    return sum_of(space, name)


def claims(space: Space) -> set[str]:
    return {each["metadata"]["name"] for each in space.engine.get("-n", space.namespace, "pvc")["items"]}


def directory(space: Space, name: str) -> Path:
    """Where the claim's files are on this machine."""
    volume = space.engine.get("-n", space.namespace, "pvc", name)["spec"]["volumeName"]
    spec = space.engine.get("pv", volume)["spec"]
    path = Path((spec.get("hostPath") or spec.get("local") or {}).get("path", "/nonexistent"))
    if not path.is_dir():
        pytest.skip("the claims of this cluster are not on this machine")
    return path


def test_a_guest_sleeps_and_goes_on(stored: Space) -> None:  # noqa: F811
    """Twice, since the second state must not be mistaken for the first."""
    space = stored
    machine = counting(space, "sleeper")
    boot, before = begin(space, "sleeper")
    disk = write_blocks(space, "sleeper")
    used = set()
    for _ in range(2):
        machine.virtctl("hibernate")
        saved = reaches(space, "sleeper", "Saved")
        assert saved["fileName"] not in used
        used.add(saved["fileName"])
        found = machine.printable("Stopped")
        assert conditions(found)["Hibernated"] == "True"
        assert machine.get()["spec"]["runStrategy"] == "Halted"
        assert "is hibernated" in space.virtctl("explain", "vm", "sleeper")
        assert saved["claimName"] in claims(space)

        wake(machine)
        before = goes_on(space, "sleeper", boot, before)
        assert on_disk(space, "sleeper") == disk
        assert "Hibernated" not in conditions(machine.status())
    # What was made for the state goes again, at the latest with the Pod that held it.
    space.virtctl("stop", "sleeper")
    machine.printable("Stopped")
    eventually(lambda: claims(space) == {"disk-of-sleeper"}, within_s=60, what="the claims of the states are gone")


def test_a_state_over_a_disk_that_was_written_is_refused(stored: Space) -> None:  # noqa: F811
    space = stored
    machine = counting(space, "stale", "Manual")
    boot, _ = begin(space, "stale")
    claim(space, "sleep", "512Mi")
    machine.virtctl("hibernate", "--claim-name", "sleep")
    saved = reaches(space, "stale", "Saved")
    image = directory(space, "disk-of-stale") / "disk.img"
    with image.open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"somebody else's")
    machine.virtctl("start")

    def refused() -> str:
        told = space.engine.run("virtctl", "-n", space.namespace, "explain", "vm", "stale").stdout
        return told if "was written since the state was saved" in told else ""

    eventually(refused, within_s=90, what="the reason is told")
    assert (directory(space, "sleep") / saved["fileName"]).stat().st_size > 1 << 20
    machine.virtctl("start", "--discard-state")
    machine.printable("Running")
    with space.console("stale") as console:
        console.prompt()
        assert console.boot_id() != boot
        assert "somebody" in console.shell("dd if=/dev/vda bs=1M skip=1 count=1 2>/dev/null | head -c 16")
    assert "sleep" in claims(space)


def test_what_does_not_fit_is_refused(stored: Space) -> None:  # noqa: F811
    space = stored
    machine = counting(space, "misfit", "Manual")
    begin(space, "misfit")
    machine.virtctl("hibernate")
    reaches(space, "misfit", "Saved")
    machine.printable("Stopped")
    grown = '{"spec":{"template":{"spec":{"domain":{"memory":{"guest":"160Mi"}}}}}}'
    space.kubectl("patch", "vm", "misfit", "--type=merge", "-p", grown)
    machine.virtctl("start")

    def told() -> bool:
        found = machine.status()["conditions"]
        return any(c["type"] == "Failure" and c["reason"] == "SavedStateDoesNotFit" for c in found)

    eventually(told, within_s=30, what="the VM says that its state does not fit")
    assert not machine.has_vmi()
    machine.virtctl("start", "--discard-state")
    machine.printable("Running")


def test_machines_that_cannot_sleep_are_told_why(stored: Space) -> None:  # noqa: F811
    space = stored
    manifest = vm("waking", "Always")
    spec = manifest["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "scratch", "emptyDisk": {"capacity": "16Mi"}}]
    spec["domain"]["devices"]["disks"] = [{"name": "scratch", "disk": {"bus": "virtio"}}]
    space.apply(manifest)
    Machine(space, "waking").printable("Running")
    refused = space.engine.run("virtctl", "-n", space.namespace, "hibernate", "waking")
    assert "spec.volumes[scratch]" in refused.stderr
    assert state(space, "waking") == {}


def test_a_snapshot_with_memory_is_gone_back_to(stored: Space) -> None:  # noqa: F811
    """Twice: each restore makes a copy of the state, which is resumed once."""
    space = stored
    machine = counting(space, "witness", "Manual")
    boot, _ = begin(space, "witness")
    then = write_blocks(space, "witness")
    space.virtctl("snapshot", "witness", "--name", "instant", "--memory", "--wait", timeout=180)
    found = space.engine.get("-n", space.namespace, "vmsnapshot", "instant")["status"]
    assert found["indications"] == ["Memory", "Online"]
    machine.printable("Running")
    at_least = goes_on(space, "witness", boot, 0)
    eventually(lambda: claims(space) == {"disk-of-witness"}, within_s=60, what="the claim of the memory is gone")
    for _ in range(2):
        now = write_blocks(space, "witness")
        assert now != then
        with space.console("witness") as console:
            console.prompt()
            console.shell("echo other > /tmp/mark")
            eventually(lambda: count(console) > at_least + 20, within_s=120, what="the guest counts on")
        space.virtctl("restore", "witness", "instant", "--stop", "--wait", timeout=180)
        assert conditions(machine.status())["Hibernated"] == "True"
        wake(machine)
        with space.console("witness") as console:
            console.prompt()
            assert console.boot_id() == boot
            assert count(console) <= at_least + 20
            assert "other" not in console.shell("cat /tmp/mark")
        goes_on(space, "witness", boot, 0)
        assert on_disk(space, "witness") == then


def test_a_snapshot_of_memory_that_nobody_has_fails(stored: Space) -> None:  # noqa: F811
    space = stored
    claim(space, "disk-of-still", "32Mi")
    space.apply(with_claim(vm("still", "Halted"), "disk-of-still"))
    made = space.engine.run("virtctl", "-n", space.namespace, "snapshot", "still", "--memory", "--wait")
    assert "does not run" in made.stderr
