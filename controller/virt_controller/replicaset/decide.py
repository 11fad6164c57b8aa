"""How many VMIs a replica set lacks and which it has too many of. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.registry import owner_reference
from virt_core.apis.replicaset import VirtualMachineInstanceReplicaSet, VirtualMachineInstanceReplicaSetStatus
from virt_core.apis.selectors import text
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.kube.conditions import get_condition, is_true

#: New VMIs in one round; the rest follows in the next.
BURST = 250


@dataclass(frozen=True, slots=True)
class Decision:
    create: int = 0
    delete: tuple[VirtualMachineInstance, ...] = ()


def is_active(vmi: VirtualMachineInstance) -> bool:
    return not is_final(vmi) and not is_terminating(vmi)


def loses_pod(vmi: VirtualMachineInstance) -> bool:
    """Its Pod is being deleted: it will not come back."""
    ready = get_condition(vmi.status.conditions, names.CONDITION_READY)
    return ready is not None and ready.status == names.FALSE and ready.reason == names.REASON_POD_TERMINATING


def wanted(rs: VirtualMachineInstanceReplicaSet) -> int:
    return 1 if rs.spec.replicas is None else rs.spec.replicas


def decide(rs: VirtualMachineInstanceReplicaSet, vmis: Sequence[VirtualMachineInstance]) -> Decision:
    if is_terminating(rs) or rs.spec.paused:
        return Decision()
    over = [v for v in vmis if not is_terminating(v) and (not is_active(v) or loses_pod(v))]
    active = [v for v in vmis if is_active(v) and not loses_pod(v)]
    surplus = len(active) - wanted(rs)
    if surplus > 0:
        over += active[:surplus]
    return Decision(create=min(max(-surplus, 0), BURST), delete=tuple(over))


def make_vmi(rs: VirtualMachineInstanceReplicaSet) -> VirtualMachineInstance:
    template = rs.spec.template
    given = template.metadata or ObjectMeta()
    metadata = ObjectMeta(
        generate_name=given.name or given.generate_name or rs.metadata.name,
        namespace=rs.metadata.namespace,
        labels=dict(given.labels),
        annotations=dict(given.annotations),
        owner_references=[owner_reference(rs)],
    )
    spec = from_plain(to_plain(template.spec), VirtualMachineInstanceSpec)
    return VirtualMachineInstance(metadata=metadata, spec=spec)


def status(
    rs: VirtualMachineInstanceReplicaSet, vmis: Sequence[VirtualMachineInstance]
) -> VirtualMachineInstanceReplicaSetStatus:
    active = [v for v in vmis if is_active(v)]
    ready = [v for v in active if is_true(v.status.conditions, names.CONDITION_READY)]
    return replace(rs.status, replicas=len(active), ready_replicas=len(ready), label_selector=text(rs.spec.selector))
