"""libvirt's state and reason numbers as words. Pure tables; the names are those of KubeVirt's API, which users know."""

from __future__ import annotations

from virt_launcher.hypervisor.ports import State

_STATES = {
    0: State.ABSENT,
    1: State.RUNNING,
    2: State.BLOCKED,
    3: State.PAUSED,
    4: State.SHUTTING_DOWN,
    5: State.SHUTOFF,
    6: State.CRASHED,
    7: State.PM_SUSPENDED,
}

_PAUSED = (
    "Unknown",
    "User",
    "Migration",
    "Save",
    "Dump",
    "IOError",
    "Watchdog",
    "FromSnapshot",
    "ShuttingDown",
    "Snapshot",
    "Crashed",
    "StartingUp",
    "Postcopy",
    "PostcopyFailed",
    "ApiError",
)
#: Of one that runs only what matters: part of its memory is still on the side that it comes from.
_RUNNING = ("",) * 10 + ("Postcopy", "PostcopyFailed")
_SHUTOFF = ("Unknown", "Shutdown", "Destroyed", "Crashed", "Migrated", "Saved", "Failed", "FromSnapshot", "Daemon")
_CRASHED = ("Unknown", "Panicked")
_SHUTTING_DOWN = ("", "User")

_REASONS = {
    State.RUNNING: _RUNNING,
    State.PAUSED: _PAUSED,
    State.SHUTOFF: _SHUTOFF,
    State.CRASHED: _CRASHED,
    State.SHUTTING_DOWN: _SHUTTING_DOWN,
}


def state_and_reason(state: int, reason: int) -> tuple[State, str]:
    """The reason is empty where it says nothing (of most machines that run)."""
    word = _STATES.get(state, State.ABSENT)
    reasons = _REASONS.get(word, ())
    return word, reasons[reason] if 0 <= reason < len(reasons) else ""
