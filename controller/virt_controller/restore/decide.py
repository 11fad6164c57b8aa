"""How far a restore is: whether its target may be touched, what it waits for, what its conditions say. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis import snapshot as words
from virt_core.apis.facts import is_final
from virt_core.apis.snapshot import (
    VirtualMachineRestore,
    VirtualMachineRestoreStatus,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
)
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import set_condition
from virt_core.runtime.times import parse_rfc3339, rfc3339

#: How a status says what is told.
Tell = Callable[[VirtualMachineRestoreStatus, str, datetime], VirtualMachineRestoreStatus]
#: How long a target may take to stop where nobody says it.
GRACE_S = 300.0

INITIALIZING, DONE, FAILED = "Initializing VirtualMachineRestore", "Operation complete", "Operation failed"
CREATING_CLAIMS, WAITING_FOR_CLAIMS = "Creating new PVCs", "Waiting for new PVCs"
UPDATING_TARGET, WAITING_FOR_TARGET = "Updating target spec", "Waiting for target update"
WAITING_FOR_STOP = "Waiting for target to be ready"


class HoldUp(Exception):
    """It does not go on now. The text is for whoever waits."""


class Waiting(HoldUp):
    """For something that goes its way."""


class NotReady(Waiting):
    """The target still runs. `stop`: it is to be asked to end."""

    def __init__(self, text: str, *, stop: bool = False, left_s: float | None = None) -> None:
        super().__init__(text)
        self.stop, self.left_s = stop, left_s


class Trouble(HoldUp):
    """Something that somebody must do something about; it is tried again. `event`: by which name, if it has its own."""

    def __init__(self, text: str, *, event: str = "") -> None:
        super().__init__(text)
        self.event = event


class Hopeless(HoldUp):
    """It will never be possible."""


def check_target(restore: VirtualMachineRestore, vmi: VirtualMachineInstance | None, now: datetime) -> None:
    """Raises NotReady, Hopeless."""
    if vmi is None or is_final(vmi):
        return
    name, policy = restore.spec.target.name, restore.spec.target_readiness_policy or words.WAIT_GRACE_PERIOD
    if policy == words.FAIL_IMMEDIATE:
        raise Hopeless(f"VM {name} is running, and targetReadinessPolicy is {policy}")
    if policy == words.STOP_TARGET:
        raise NotReady(f"VM {name} is being stopped", stop=vmi.metadata.deletion_timestamp is None)
    if policy != words.WAIT_GRACE_PERIOD:
        raise NotReady(f"VM {name} is running; it is waited for until it is stopped")
    made = restore.metadata.creation_timestamp
    left = (parse_rfc3339(made) + timedelta(seconds=GRACE_S) - now).total_seconds() if made else GRACE_S
    if left <= 0:
        raise Hopeless(f"VM {name} was not stopped within {GRACE_S:.0f} s")
    raise NotReady(f"VM {name} is running: stop it", left_s=left)


def check_snapshot(
    restore: VirtualMachineRestore,
    snapshot: VirtualMachineSnapshot | None,
    content: VirtualMachineSnapshotContent | None,
    vm: VirtualMachine | None,
) -> tuple[VirtualMachineSnapshot, VirtualMachineSnapshotContent]:
    """Raises Waiting, Trouble, Hopeless."""
    name = restore.spec.virtual_machine_snapshot_name
    if snapshot is None or snapshot.metadata.deletion_timestamp is not None:
        raise Trouble(f"there is no VirtualMachineSnapshot {name}")
    if snapshot.status.phase == words.FAILED:
        raise Hopeless(f"VirtualMachineSnapshot {name} has failed, so nothing can be restored from it")
    if not snapshot.status.ready_to_use or content is None or not content.status.ready_to_use:
        raise Trouble(f"VirtualMachineSnapshot {name} is not ready to use")
    if vm is not None and vm.metadata.uid != snapshot.status.source_uid:
        raise Trouble(
            f"VM {vm.metadata.name} is there, and is not the one that was saved: delete it, or restore to another name"
        )
    if vm is not None and vm.metadata.deletion_timestamp is not None:
        raise Waiting(f"VM {vm.metadata.name} is being deleted")
    if vm is not None and vm.status.restore_in_progress not in (None, "", restore.metadata.name):
        raise Trouble(f"restore {vm.status.restore_in_progress} of VM {vm.metadata.name} is in progress")
    if vm is not None and vm.status.snapshot_in_progress:
        raise Waiting(f"snapshot {vm.status.snapshot_in_progress} of VM {vm.metadata.name} is in progress")
    return snapshot, content


def begun(restore: VirtualMachineRestore, now: datetime) -> VirtualMachineRestoreStatus:
    status = _conditions(restore.status, now, (names.TRUE, INITIALIZING), (names.FALSE, INITIALIZING))
    return replace(status, complete=False)


def waiting(status: VirtualMachineRestoreStatus, reason: str, now: datetime) -> VirtualMachineRestoreStatus:
    return replace(_conditions(status, now, (names.TRUE, reason), (names.FALSE, reason)), complete=False)


def troubled(status: VirtualMachineRestoreStatus, reason: str, now: datetime) -> VirtualMachineRestoreStatus:
    return replace(_conditions(status, now, (names.FALSE, reason), (names.FALSE, reason)), complete=False)


def failed(status: VirtualMachineRestoreStatus, reason: str, now: datetime) -> VirtualMachineRestoreStatus:
    status = _conditions(status, now, (names.FALSE, FAILED), (names.FALSE, FAILED))
    set_condition(status.conditions, words.FAILURE, names.TRUE, reason, reason, now)
    return replace(status, complete=False)


def completed(status: VirtualMachineRestoreStatus, now: datetime) -> VirtualMachineRestoreStatus:
    status = _conditions(status, now, (names.FALSE, DONE), (names.TRUE, DONE))
    return replace(status, complete=True, restore_time=rfc3339(now))


def _conditions(
    status: VirtualMachineRestoreStatus, now: datetime, progressing: tuple[str, str], ready: tuple[str, str]
) -> VirtualMachineRestoreStatus:
    conditions = [replace(each) for each in status.conditions]
    set_condition(conditions, words.PROGRESSING, progressing[0], progressing[1], "", now)
    set_condition(conditions, words.READY, ready[0], ready[1], "", now)
    return replace(status, conditions=conditions)
