"""What a pool does next: make, take away, change, restart, heal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from virt_controller.pool import choose, healing
from virt_controller.pool.naming import template_of
from virt_controller.sets.selectors import text
from virt_core.apis import names
from virt_core.apis.pool import VirtualMachinePool, VirtualMachinePoolSelectionPolicy, VirtualMachinePoolStatus
from virt_core.apis.quantity import IntOrString
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
    node_labels: choose.NodeLabels = lambda _vm: {}


@dataclass(frozen=True, slots=True)
class Decision:
    create: int = 0
    delete: tuple[VirtualMachine, ...] = ()
    #: VMs that get the current template.
    update: tuple[VirtualMachine, ...] = ()
    #: VMIs that must go so that the VM's new template takes effect.
    restart: tuple[VirtualMachineInstance, ...] = ()
    recheck_s: float = 0.0


def wanted(pool: VirtualMachinePool) -> int:
    return 1 if pool.spec.replicas is None else pool.spec.replicas


def is_alive(vm: VirtualMachine) -> bool:
    return vm.metadata.deletion_timestamp is None


def decide(pool: VirtualMachinePool, members: Members, now: datetime) -> Decision:
    """One thing at a time: first the number, then the state of each."""
    if pool.metadata.deletion_timestamp is not None or pool.spec.paused:
        return Decision()
    alive = [vm for vm in members.vms if is_alive(vm)]
    surplus = len(alive) - wanted(pool)
    if surplus < 0:
        return Decision(create=min(-surplus, BURST))
    if surplus > 0 and (gone := _scale_in(pool, members, alive, surplus)):
        return Decision(delete=tuple(gone))
    if sick := healing.sick(pool, alive, now):
        allowed = _budget(pool, alive, sick)
        return Decision(delete=tuple(sick[:allowed]), recheck_s=RETRY_S)
    return _update(pool, members, alive, healing.recheck_s(pool, alive))


def _scale_in(
    pool: VirtualMachinePool, members: Members, alive: list[VirtualMachine], surplus: int
) -> list[VirtualMachine]:
    strategy = pool.spec.scale_in_strategy
    if strategy is not None and strategy.unmanaged is not None:
        return []
    if strategy is not None and strategy.opportunistic is not None:
        alive = [vm for vm in alive if vm.metadata.name not in members.vmis]
        return alive[:surplus]
    policy = strategy.proactive.selection_policy if strategy is not None and strategy.proactive else None
    return choose.in_order(alive, policy, members.node_labels)[:surplus]


def preserves_state(pool: VirtualMachinePool) -> bool:
    strategy = pool.spec.scale_in_strategy
    kinds = (strategy.opportunistic, strategy.proactive) if strategy is not None else ()
    return any(kind is not None and kind.state_preservation in ("Offline", "Online") for kind in kinds)


def _update(pool: VirtualMachinePool, members: Members, alive: list[VirtualMachine], recheck_s: float) -> Decision:
    strategy = pool.spec.update_strategy
    if strategy is not None and strategy.unmanaged is not None:
        return Decision(recheck_s=recheck_s)
    current = template_of(pool)
    old = [vm for vm in alive if is_outdated(vm.metadata.labels, members.templates, current)]
    if strategy is not None and strategy.opportunistic is not None:
        return Decision(update=tuple(old), recheck_s=recheck_s)
    policy = strategy.proactive.selection_policy if strategy is not None and strategy.proactive is not None else None
    return _proactive(pool, members, alive, old, policy, recheck_s)


def _proactive(  # noqa: PLR0917 - all of it is needed at once
    pool: VirtualMachinePool,
    members: Members,
    alive: list[VirtualMachine],
    old: list[VirtualMachine],
    policy: VirtualMachinePoolSelectionPolicy | None,
    recheck_s: float,
) -> Decision:
    """VMs that are changed or restarted are away for a while, so only as many at once as the pool allows."""
    current = template_of(pool)
    stale = [vm for vm in alive if _runs_old(vm, members, current)]
    names_old = {vm.metadata.name for vm in old}
    affected = old + [vm for vm in stale if vm.metadata.name not in names_old]
    if not affected:
        return Decision(recheck_s=recheck_s)
    chosen = choose.in_order(affected, policy, members.node_labels)[: _budget(pool, alive, affected)]
    rebuilt = [vm for vm in chosen if vm in old and _volumes_changed(vm, members.templates, current)]
    update = [vm for vm in chosen if vm in old and vm not in rebuilt]
    restart = [members.vmis[vm.metadata.name] for vm in chosen if vm in stale and vm not in rebuilt]
    return Decision(
        delete=tuple(rebuilt),
        update=tuple(update),
        restart=tuple(v for v in restart if v.metadata.deletion_timestamp is None),
        recheck_s=RETRY_S,
    )


def is_outdated(labels: Mapping[str, str], templates: Mapping[str, dict[str, Any]], current: dict[str, Any]) -> bool:
    """Another revision with the same template is as good as this one."""
    return templates.get(labels.get(names.LABEL_POOL_REVISION, "")) != current


def _runs_old(vm: VirtualMachine, members: Members, current: dict[str, Any]) -> bool:
    vmi = members.vmis.get(vm.metadata.name)
    return vmi is not None and is_outdated(vmi.metadata.labels, members.templates, current)


def _volumes_changed(vm: VirtualMachine, templates: Mapping[str, dict[str, Any]], current: dict[str, Any]) -> bool:
    before = templates.get(vm.metadata.labels.get(names.LABEL_POOL_REVISION, ""), {})
    return bool(_data_volumes(before) != _data_volumes(current))


def _data_volumes(template: dict[str, Any]) -> Any:
    return (template.get("spec") or {}).get("dataVolumeTemplates") or []


def _budget(pool: VirtualMachinePool, alive: Sequence[VirtualMachine], affected: Sequence[VirtualMachine]) -> int:
    """How many may be taken down now. Those that are down already and about to be changed cost nothing more."""
    away = [vm for vm in alive if not vm.status.ready]
    most = max(_count(pool.spec.max_unavailable, len(alive)), 1)
    free = len([vm for vm in affected if not vm.status.ready])
    return max(most - len(away), 0) + free


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
