"""Messages about a move, as the launcher's own values. Imported when one is asked for."""

from __future__ import annotations

from virt_launcher.errors import InvalidVMIError
from virt_launcher.moves.traffic import Wishes
from virt_protos.launcher.v1 import launcher_pb2 as pb

_MAX_CONNECTIONS = 32


def wishes_from(request: pb.MigrateRequest) -> Wishes:
    return Wishes(
        uid=request.uid,
        bandwidth_mib=request.bandwidth_mib,
        auto_converge=request.auto_converge,
        post_copy=request.post_copy,
        workload_disruption=request.workload_disruption,
        unsafe=request.unsafe,
        completion_timeout_per_gib=request.completion_timeout_per_gib,
        progress_timeout=request.progress_timeout,
        parallel=min(request.parallel_connections, _MAX_CONNECTIONS),
        max_downtime_ms=request.max_downtime_ms,
    )


def is_gone(request: pb.SettleMigrationRequest) -> bool:
    outcomes = {
        pb.SettleMigrationRequest.OUTCOME_STAYS: False,
        pb.SettleMigrationRequest.OUTCOME_GONE: True,
    }
    if request.outcome not in outcomes:
        raise InvalidVMIError("outcome", "must be OUTCOME_STAYS or OUTCOME_GONE")
    return outcomes[request.outcome]
