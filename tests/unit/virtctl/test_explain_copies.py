"""A snapshot or a restore in one sentence, and the command that helps."""

from __future__ import annotations

from typing import Any

import pytest
from framework.copies import SAVED, at, claim, content, restore, snapshot, vm_with

from virt_core.apis.nodes import Event
from virt_core.apis.podparts import ObjectReference
from virtctl.explain.copies import Copy, explained, restore_standing, snapshot_standing
from virtctl.explain.render import as_text
from virtctl.explain.words import Standing

from .test_standing import says


def told(reason: str, status: str = "False", kind: str = "Progressing") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason}


def of(status: dict[str, Any], after_s: float = 60, **around: Any) -> Standing:
    found = snapshot(status, around.pop("metadata", None))
    return snapshot_standing(Copy(at(after_s), found, **around), found)


WAITS = {"phase": "InProgress", "conditions": [told("Source locked and operation in progress", "True")]}


def test_what_a_snapshot_waits_for() -> None:
    says(of({}), "has not looked at it yet")
    says(of(WAITS), "There is no VM vm yet", "given up in 4 min")
    blocked = {"phase": "InProgress", "conditions": [told("Source not locked: claims are not bound: disk")]}
    says(of(blocked, vm=vm_with()), "claims are not bound: disk")
    says(of(WAITS, vm=vm_with(), content=content()), "storage has not taken", SAVED)
    wrong = content({"error": {"message": "the agent does not answer"}})
    says(of(WAITS, vm=vm_with(), content=wrong), "the agent does not answer", "tried again")
    taken = content({"volumeSnapshotStatus": [{"volumeSnapshotName": SAVED, "creationTime": "2026-01-01T00:00:01Z"}]})
    says(of(WAITS, vm=vm_with(), content=taken), "about to go on")


def test_what_became_of_a_snapshot() -> None:
    done = of({"phase": "Succeeded", "readyToUse": True, "indications": ["GuestAgent", "Online"]})
    says(done, "VM vm is saved (GuestAgent, Online)", "can be restored")
    assert (done.final, done.failed) == (True, False)
    failed = of({"phase": "Failed", "error": {"message": "snapshot deadline exceeded: no room"}})
    says(failed, "It Failed: snapshot deadline exceeded: no room", "free again")
    assert (failed.final, failed.failed) == (True, True)
    says(
        of({"phase": "Succeeded", "readyToUse": False, "error": {"message": "x missing"}}),
        "cannot be restored: x missing",
    )
    says(of({}, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "being deleted")


def back(status: dict[str, Any], **around: Any) -> Standing:
    found = restore(status)
    return restore_standing(Copy(at(1), restore=found, **around), found)


def warning(text: str) -> Event:
    return Event(
        type="Warning", reason="RestoreTargetNotReady", message=text, involved_object=ObjectReference(name="back")
    )


@pytest.mark.parametrize(
    ("status", "around", "parts"),
    [
        ({}, {}, ("has not looked at it yet",)),
        ({"complete": True}, {}, ("VM vm is as snapshot snap has it",)),
        ({"conditions": [told("never", "True", "Failure")]}, {}, ("It Failed: never", "make a new one")),
        (
            {"conditions": [told("Waiting for new PVCs", "True")]},
            {"claims": [claim("new", phase="Pending")]},
            ("Waiting for new PVCs: new",),
        ),
        (
            {"conditions": [told("Waiting for target to be ready", "True")]},
            {"events": [warning("VM vm is running: stop it")]},
            ("VM vm is running: stop it",),
        ),
        (
            {"conditions": [told("there is no VirtualMachineSnapshot snap")]},
            {},
            ("there is no VirtualMachineSnapshot",),
        ),
    ],
)
def test_how_far_a_restore_is(status: dict[str, Any], around: dict[str, Any], parts: tuple[str, ...]) -> None:
    says(back(status, **around), *parts)


def test_the_text_has_each_volume() -> None:
    found = snapshot(WAITS)
    rows = [{"volumeSnapshotName": SAVED, "readyToUse": False, "error": {"message": "no room"}}]
    held = content({"volumeSnapshotStatus": rows})
    text = as_text(explained(Copy(at(60), found, held, vm=vm_with(), events=[], unread=("Events",))))
    assert text.startswith("VirtualMachineSnapshot default/snap: InProgress\n")
    assert f"Volume data: VolumeSnapshot {SAVED} is not ready; no room" in text
    assert "Events: you may not read them" in text
    text = as_text(explained(Copy(at(60), restore=restore({"complete": True}), claims=[claim("new")])))
    assert text.startswith("VirtualMachineRestore default/back: Complete\n")
    assert "Claim new: Bound" in text
