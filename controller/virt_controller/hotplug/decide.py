"""Which Pods bring a VMI's volumes to its node. Pure.

One Pod holds all volumes that are ready. When their number changes another one takes its place; the old one goes only
when the new one runs, and never while the guest uses a volume that nobody else holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virt_controller.hotplug.wanted import Storage, Wanted, claims_of
from virt_core.apis import names
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance

_ALIVE = frozenset({names.PHASE_SCHEDULED, names.PHASE_RUNNING})


@dataclass(frozen=True, slots=True)
class Pods:
    """The attachment Pods of a launcher."""

    #: The one that holds exactly what is ready.
    current: Pod | None = None
    #: Others, the newest first.
    old: tuple[Pod, ...] = ()
    #: Those that are only the first users of claims.
    triggers: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    #: A Pod for these volumes is needed.
    create: tuple[Wanted, ...] = ()
    #: Claims that wait for a first user.
    trigger: tuple[Wanted, ...] = ()
    delete: tuple[Pod, ...] = ()


def is_over(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def is_ready(pod: Pod) -> bool:
    """Its one container runs."""
    statuses = pod.status.container_statuses
    return pod.status.phase == "Running" and not is_terminating(pod) and bool(statuses) and statuses[0].ready


def is_trigger(pod: Pod) -> bool:
    return names.ANNOTATION_EPHEMERAL_PROVISIONING in pod.metadata.annotations


def sorted_out(pods: Sequence[Pod], ready: Sequence[Wanted]) -> Pods:
    claims = {each.claim for each in ready}
    newest = sorted(pods, key=lambda p: (p.metadata.creation_timestamp or "", p.metadata.name), reverse=True)
    holders = [pod for pod in newest if not is_trigger(pod)]
    fitting = [p for p in holders if claims_of(p) == claims and not is_terminating(p) and not is_over(p)]
    current = next(iter(sorted(fitting, key=is_ready, reverse=True)), None) if claims else None
    old = tuple(pod for pod in holders if pod is not current)
    return Pods(current, old, tuple(pod for pod in newest if is_trigger(pod)))


def decide(
    vmi: VirtualMachineInstance, wanted: Sequence[Wanted], storage: Storage, pods: Sequence[Pod]
) -> tuple[Pods, Decision]:
    if is_terminating(vmi) or vmi.status.phase not in _ALIVE:
        # They go with the launcher Pod, which owns them; those of a VMI that is over need not wait for that.
        gone = tuple(pod for pod in pods if is_final(vmi) and not is_terminating(pod))
        return sorted_out(pods, ()), Decision(delete=gone)
    ready = [each for each in wanted if storage.brings(each)]
    found = sorted_out(pods, ready)
    starting = any(pod.status.phase in ("", "Pending") and not is_terminating(pod) for pod in found.old)
    create = tuple(ready) if ready and found.current is None and not starting else ()
    delete = [pod for pod in found.old if _may_go(pod, vmi, wanted, found) and not is_terminating(pod)]
    waiting = tuple(each for each in wanted if storage.waits_for_user(each.claim))
    helping = [pod for pod in found.triggers if not is_over(pod) and not is_terminating(pod)]
    served = {claim for pod in helping for claim in claims_of(pod)}
    trigger = tuple(each for each in waiting if each.claim not in served)
    delete += [pod for pod in found.triggers if _is_done(pod, waiting) and not is_terminating(pod)]
    return found, Decision(create, trigger, tuple(delete))


def _is_done(trigger: Pod, waiting: Sequence[Wanted]) -> bool:
    return is_over(trigger) or not claims_of(trigger) & {each.claim for each in waiting}


def _may_go(pod: Pod, vmi: VirtualMachineInstance, wanted: Sequence[Wanted], found: Pods) -> bool:
    if is_over(pod):
        return True  # It holds nothing any more.
    held, asked = claims_of(pod), {each.claim for each in wanted}
    if (in_launcher(vmi) & held) - asked:
        return False  # The guest still has a volume that shall go.
    newest = next((each for each in found.old if is_ready(each)), None)
    replaced = found.current is not None and is_ready(found.current)
    return replaced or pod is not newest or not held & asked


def in_launcher(vmi: VirtualMachineInstance) -> set[str]:
    """The claims of hot-plugged volumes that are mounted in the launcher."""
    return {
        info.claim_name
        for status in vmi.status.volume_status
        if status.hotplug_volume is not None and status.phase in names.VOLUME_IN_LAUNCHER
        if (info := status.persistent_volume_claim_info) is not None
    }
