"""The forecast of a move as a condition of the VMI, for as long as the move lasts. Pure.

It is written along with the start of the move. One that came too late for that is written when the move lasts: a
write of its own could get in the way of the one by which the target takes the guest over.
"""

from __future__ import annotations

from datetime import datetime

from virt_core.apis import names
from virt_core.apis.moveview import CONVERGES, UNKNOWN, WILL_NOT, WITH_HELP
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus as Status
from virt_core.kube.vmistatus import with_condition, without_condition
from virt_core.runtime.times import parse_rfc3339
from virt_handler.decisions.moving import under_way
from virt_handler.decisions.vocabulary import Foreseen
from virt_protos.node.v1 import node_pb2

#: So long a move lasts that nobody minds one more write.
LASTS_S = 5.0
VERDICTS = {
    node_pb2.CONVERGENCE_YES: (CONVERGES, names.TRUE),
    node_pb2.CONVERGENCE_HELPED: (WITH_HELP, names.TRUE),
    node_pb2.CONVERGENCE_NO: (WILL_NOT, names.FALSE),
    node_pb2.CONVERGENCE_UNKNOWN: (UNKNOWN, "Unknown"),
}


def forecast_told(vmi: VirtualMachineInstance, status: Status, foreseen: Foreseen | None, now: datetime) -> Status:
    before, after = under_way(vmi), status.migration_state
    if before is None or after is None or after.failed:
        return without_condition(status, names.CONDITION_FORECAST)
    if foreseen is None or foreseen.job != after.migration_uid or not after.start_timestamp:
        return status
    lasted_s = (now - parse_rfc3339(after.start_timestamp)).total_seconds()
    if before.start_timestamp and lasted_s < LASTS_S:
        return status
    reason, value = VERDICTS.get(foreseen.convergence, (UNKNOWN, "Unknown"))  # type: ignore[call-overload]
    return with_condition(status, names.CONDITION_FORECAST, value, reason, foreseen.message, now=now)
