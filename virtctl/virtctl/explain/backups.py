"""Where a backup stands, in one sentence. Pure."""

from __future__ import annotations

from virt_core.apis.backup import COMPLETE, FAILED, PROGRESSING, QUIESCED, VirtualMachineBackup
from virt_core.apis.meta import Condition
from virtctl.explain.render import Explanation
from virtctl.explain.words import Standing


def explained(backup: VirtualMachineBackup) -> Explanation:
    """With what is in it."""
    status = backup.status
    found = [f"volume {each.volume_name}" for each in status.included_volumes]
    found += [f"checkpoint {status.checkpoint_name}"] if status.checkpoint_name else []
    if (quiesced := _told(backup, QUIESCED)) is not None:
        found.append(f"filesystems: {quiesced.reason}{f' ({quiesced.message})' if quiesced.message else ''}")
    return Explanation(
        kind=backup.kind,
        namespace=backup.metadata.namespace,
        name=backup.metadata.name,
        phase=phase(backup),
        node="",
        standing=standing_of(backup),
        steps=[],
        evidence=found,
    )


def phase(backup: VirtualMachineBackup) -> str:
    for kind in (COMPLETE, FAILED):
        if (told := _told(backup, kind)) is not None and told.status == "True":
            return kind
    progress = _told(backup, PROGRESSING)
    return progress.reason if progress is not None else "New"


def standing_of(backup: VirtualMachineBackup) -> Standing:
    meta, source = backup.metadata, backup.spec.source
    of = f"The {f'{backup.status.type.lower()} ' if backup.status.type else ''}backup of {source.kind} {source.name}"
    look = f"kubectl describe vmbackup {meta.name} -n {meta.namespace}"
    if (told := _told(backup, COMPLETE)) is not None and told.status == "True":
        return Standing(f"{of} is complete: {told.message}.", look, final=True)
    if (told := _told(backup, FAILED)) is not None and told.status == "True":
        return Standing(f"{of} failed: {told.message}.", look, final=True, failed=True)
    progress = _told(backup, PROGRESSING)
    if progress is None:
        return Standing(f"{of} was not looked at by virt-controller yet.", look)
    if progress.reason == "Initializing":
        return Standing(f"{of} waits: {progress.message}.", look)
    return Standing(f"{of} is {progress.reason}: {progress.message}.", look)


def _told(backup: VirtualMachineBackup, kind: str) -> Condition | None:
    return next((each for each in backup.status.conditions if each.type == kind), None)
