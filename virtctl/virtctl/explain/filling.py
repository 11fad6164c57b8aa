"""Disks that a machine waits for: how far each DataVolume is, or why it cannot be filled. Pure."""

from __future__ import annotations

from virt_core.apis.datavolume import DONE, FAILED, RUNNING, WAITING, DataVolume
from virt_core.kube.conditions import get_condition
from virtctl.explain.facts import Facts
from virtctl.explain.words import Standing, text_of

_WIDTH = 20


def filling(facts: Facts) -> Standing | None:
    """The first that is not done."""
    for disk in facts.disks:
        if disk.status.phase not in (DONE, *WAITING):
            return _told(facts, disk)
    return None


def _told(facts: Facts, disk: DataVolume) -> Standing:
    name, phase = disk.metadata.name, disk.status.phase
    why = text_of(get_condition(disk.status.conditions, RUNNING)).rstrip(".")
    if phase == FAILED:
        words = f"Its disk {name} cannot be filled: {why or 'the DataVolume does not say why'}."
        return Standing(words, f"kubectl describe dv {name} -n {facts.namespace}", final=True, failed=True)
    share = _share(disk.status.progress)
    how = f": {share:.0f} % {_bar(share)}" if share is not None else f" (phase {phase or 'not set yet'})"
    return Standing(f"Its disk {name} is being filled{how}.", f"kubectl get dv {name} -n {facts.namespace} -w")


def _share(progress: str) -> float | None:
    try:
        return float(progress.rstrip("%"))
    except ValueError:
        return None


def _bar(share: float) -> str:
    full = int(min(max(share, 0.0), 100.0) * _WIDTH / 100)
    return f"[{'#' * full}{' ' * (_WIDTH - full)}]"
