"""What a pool does next: make, take away, change, restart, heal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from virt_controller.pool import choose, healing
from virt_controller.pool.naming import template_of
from virt_core.apis import names
from virt_core.apis.facts import is_terminating
from virt_core.apis.meta import OwnerReference
from virt_core.apis.pool import VirtualMachinePool, VirtualMachinePoolStatus
from virt_core.apis.quantity import IntOrString
from virt_core.apis.selectors import text
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance

BURST = 250
#: How often an update that could not reach all VMs goes on.
RETRY_S = 3.0


@dataclass(frozen=True, slots=True)
class Members:
    """A pool's VMs, the VMIs of those that run, and what they were made from."""

    vms: Sequence[VirtualMachine]
    vmis: Mapping[str, VirtualMachineInstance] = field(default_factory=dict)
    #: Revision name → the template it holds.
    templates: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    node_labels: choose.NodeLabels = choose.no_node


@dataclass(frozen=True, slots=True)
class Decision:
    create: int = 0
    #: VMs that go; their volumes stay where the pool preserves them.
    delete: tuple[VirtualMachine, ...] = ()
    #: VMs that go with their volumes, because those who come after them start from other ones.
    rebuild: tuple[VirtualMachine, ...] = ()
    #: VMs that get the current template.
    update: tuple[VirtualMachine, ...] = ()
    #: VMIs that must go so that the VM's new template takes effect.
    restart: tuple[VirtualMachineInstance, ...] = ()
    #: VMs that lack the pool's finalizer, or have it for nothing.
    guard: tuple[VirtualMachine, ...] = ()
    recheck_s: float = 0.0


def wanted(pool: VirtualMachinePool) -> int:
    return 1 if pool.spec.replicas is None else pool.spec.replicas


def is_alive(vm: VirtualMachine) -> bool:
    return not is_terminating(vm)


def decide(pool: VirtualMachinePool, members: Members, now: datetime) -> Decision:
    """One thing at a time: first the number, then the state of each. A VM that is going still has its number."""
    if is_terminating(pool) or pool.spec.paused:
        return Decision()
    alive = [vm for vm in members.vms if is_alive(vm)]
    if unsure := [vm for vm in alive if is_guarded(vm) != preserves_state(pool)]:
        return Decision(guard=tuple(unsure))
    if (missing := wanted(pool) - len(members.vms)) > 0:
        return Decision(create=min(missing, BURST))
    surplus = len(alive) - wanted(pool)
    if surplus > 0 and (gone := _scale_in(pool, members, alive, surplus)):
        return Decision(delete=tuple(gone))
    if sick := healing.sick(pool, alive, now):
        return Decision(delete=tuple(sick))
    return _update(pool, members, alive, healing.recheck_s(pool, alive))


def _scale_in(
    pool: VirtualMachinePool, members: Members, alive: list[VirtualMachine], surplus: int
) -> list[VirtualMachine]:
    """Only the proactive strategy, which is the default, takes VMs away; with the others the user does."""
    strategy = pool.spec.scale_in_strategy
    if strategy is not None and (strategy.unmanaged is not None or strategy.opportunistic is not None):
        return []
    policy = strategy.proactive.selection_policy if strategy is not None and strategy.proactive else None
    return choose.in_order(alive, policy, members.node_labels)[:surplus]


def preserves_state(pool: VirtualMachinePool) -> bool:
    """Whether the volumes of VMs that go are kept. Memory is not: Online acts like Offline, as in KubeVirt."""
    strategy = pool.spec.scale_in_strategy
    kinds = (strategy.opportunistic, strategy.proactive) if strategy is not None else ()
    return any(kind is not None and kind.state_preservation in ("Offline", "Online") for kind in kinds)


def is_guarded(vm: VirtualMachine) -> bool:
    """It does not go before we have seen to its volumes. Where nothing is preserved, nothing should hold it up."""
    return names.FINALIZER_POOL in vm.metadata.finalizers


def is_member(pool: VirtualMachinePool, owner: OwnerReference | None) -> bool:
    """A pool that is being deleted has none any more: its VMs go as any object goes with its owner."""
    return owner is not None and owner.uid == pool.metadata.uid and not is_terminating(pool)


def _update(pool: VirtualMachinePool, members: Members, alive: list[VirtualMachine], recheck_s: float) -> Decision:
    strategy = pool.spec.update_strategy
    if strategy is not None and strategy.unmanaged is not None:
        return Decision(recheck_s=recheck_s)
    current = template_of(pool)
    policy = strategy.proactive.selection_policy if strategy is not None and strategy.proactive is not None else None
    eligible = choose.selected(alive, policy, members.node_labels)
    old = [vm for vm in eligible if is_outdated(vm.metadata.labels, members.templates, current)]
    if strategy is not None and strategy.opportunistic is not None:
        return Decision(update=tuple(old), recheck_s=recheck_s)
    rebuild = {vm.metadata.name for vm in eligible if _runs_on_old_volumes(vm, members, current)}
    if update := [vm for vm in old if vm.metadata.name not in rebuild]:
        return Decision(update=tuple(update), recheck_s=RETRY_S)
    stale = [vm for vm in eligible if vm.metadata.name in rebuild or _runs_old(vm, members, current)]
    return _replace(pool, members, alive, stale, rebuild) if stale else Decision(recheck_s=recheck_s)


def _replace(
    pool: VirtualMachinePool,
    members: Members,
    alive: list[VirtualMachine],
    stale: list[VirtualMachine],
    rebuild: Set[str],
) -> Decision:
    """VMs that are restarted are away for a while, so only as many at once as the pool allows. Those that are down
    anyway cost nothing."""
    strategy = pool.spec.update_strategy
    policy = strategy.proactive.selection_policy if strategy is not None and strategy.proactive is not None else None
    down = [vm for vm in stale if not vm.status.ready]
    ready = choose.in_order([vm for vm in stale if vm.status.ready], policy, members.node_labels)
    away = len([vm for vm in alive if not vm.status.ready])
    chosen = down + ready[: max(_most_unavailable(pool) - away, 0)]
    restart = [members.vmis[vm.metadata.name] for vm in chosen if vm.metadata.name not in rebuild]
    return Decision(
        rebuild=tuple(vm for vm in chosen if vm.metadata.name in rebuild),
        restart=tuple(vmi for vmi in restart if not is_terminating(vmi)),
        recheck_s=RETRY_S,
    )


def is_outdated(labels: Mapping[str, str], templates: Mapping[str, dict[str, Any]], current: dict[str, Any]) -> bool:
    """Another revision with the same template is as good as this one."""
    return templates.get(labels.get(names.LABEL_POOL_REVISION, "")) != current


def _runs_old(vm: VirtualMachine, members: Members, current: dict[str, Any]) -> bool:
    """What else the template says of the VM, its labels or its run strategy, needs no restart."""
    vmi = members.vmis.get(vm.metadata.name)
    return vmi is not None and _part(_template_of(vmi, members), "template") != _part(current, "template")


def _runs_on_old_volumes(vm: VirtualMachine, members: Members, current: dict[str, Any]) -> bool:
    vmi = members.vmis.get(vm.metadata.name)
    before = _template_of(vmi, members) if vmi is not None else None
    return bool(before and _part(before, "dataVolumeTemplates") != _part(current, "dataVolumeTemplates"))


def _template_of(vmi: VirtualMachineInstance, members: Members) -> dict[str, Any]:
    """What it was made from; nothing if that is not known any more."""
    return members.templates.get(vmi.metadata.labels.get(names.LABEL_POOL_REVISION, ""), {})


def _part(template: dict[str, Any], key: str) -> Any:
    return (template.get("spec") or {}).get(key) or None


def _most_unavailable(pool: VirtualMachinePool) -> int:
    return max(_count(pool.spec.max_unavailable, wanted(pool)), 1)


def _count(limit: IntOrString | None, total: int) -> int:
    if limit is None:
        return total
    if isinstance(limit, str) and limit.endswith("%"):
        share = limit.removesuffix("%")
        return total * int(share) // 100 if share.isdecimal() else total
    return int(limit)


def status(pool: VirtualMachinePool, vms: Sequence[VirtualMachine]) -> VirtualMachinePoolStatus:
    alive = [vm for vm in vms if is_alive(vm)]
    ready = len([vm for vm in alive if vm.status.ready])
    return replace(pool.status, replicas=len(alive), ready_replicas=ready, label_selector=text(pool.spec.selector))
