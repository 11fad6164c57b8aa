"""VM migrate, and how a move goes.

KubeVirt answers `migrate` with an empty body. Ours tells which job it made, and of a dry run what the move would take;
a client that does not know that ignores it. `migrationprogress` is our own: the figures of a move change every moment,
so they stay on the node and are asked for there.
"""

from __future__ import annotations

from aiohttp import web

from virt_api.problems import Problem, from_api
from virt_api.subresources import checks
from virt_api.subresources.actions import vmi_ref
from virt_api.subresources.bodies import MigrateOptions
from virt_api.subresources.call import DRY_RUN_ALL, Call, json_response
from virt_core.apis.base import to_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.migration import VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationSpec
from virt_core.apis.moveview import (
    CONVERGES,
    UNKNOWN,
    WILL_NOT,
    WITH_HELP,
    MoveForecast,
    MoveProgress,
    forecast_settings,
)
from virt_core.apis.registry import plain_object
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError, Invalid
from virt_core.kube.movesettings import best_policy, settle
from virt_core.runtime.clock import SystemClock
from virt_protos.node.v1 import node_pb2

GENERATE_NAME = "kubevirt-migrate-vm-"
_VERDICTS = {
    node_pb2.CONVERGENCE_YES: CONVERGES,
    node_pb2.CONVERGENCE_HELPED: WITH_HELP,
    node_pb2.CONVERGENCE_NO: WILL_NOT,
}


async def migrate(call: Call) -> web.Response:
    options = await call.body(MigrateOptions)
    await call.vm()
    vmi = await call.vmi()
    checks.running(vmi)
    dry = DRY_RUN_ALL in options.dry_run
    job = VirtualMachineInstanceMigration(
        metadata=ObjectMeta(generate_name=GENERATE_NAME, namespace=call.namespace),
        spec=VirtualMachineInstanceMigrationSpec(
            vmi_name=vmi.metadata.name, added_node_selector=options.added_node_selector
        ),
    )
    try:
        made = await call.kube.create_migration(job, dry_run=dry)
    except ApiError as error:
        raise _refused(error, call.name) from error
    if dry:
        return json_response(to_plain(await _forecast(call, vmi)), status=202)
    return json_response(plain_object(made), status=202)


def _refused(error: ApiError, name: str) -> Problem:
    """Why the machine cannot be moved is about its state, like everything else that this verb refuses."""
    if error.status == 400:
        return Problem(409, error.message, name=name, kind="virtualmachine")
    if isinstance(error, Invalid):
        return Problem(422, error.message, details=error.details)
    return from_api(error, name, kind="virtualmachine")


# -- the forecast ------------------------------------------------------------------------------------------------------


async def _forecast(call: Call, vmi: VirtualMachineInstance) -> MoveForecast:
    """The move could be made; that nobody can say how long it takes does not change that."""
    try:
        node = await call.nodes.of(vmi)
        answer = await node.call("ForecastMove", await _question(call, vmi))
    except (Problem, ApiError) as problem:
        return MoveForecast(message=f"what it would take cannot be told now: {problem}")
    return MoveForecast(
        verdict=_VERDICTS.get(answer.convergence, UNKNOWN),
        message=answer.message,
        memory_bytes=answer.memory_bytes,
        disk_bytes=answer.disk_bytes,
        dirty_bytes_per_second=answer.dirty_bytes_per_second,
        bandwidth_bytes_per_second=answer.bandwidth_bytes_per_second,
        bandwidth_configured=answer.bandwidth_configured,
        expected_seconds=answer.expected_ms / 1000,
        expected_downtime_milliseconds=answer.expected_downtime_ms,
    )


async def _question(call: Call, vmi: VirtualMachineInstance) -> node_pb2.ForecastMoveRequest:
    """With the settings as virt-controller would settle them. Raises ApiError."""
    policies = await call.kube.migration_policies()
    labels = (await call.kube.namespace(call.namespace)).metadata.labels if policies else {}
    settings = settle(call.config.migrations, best_policy(policies, vmi.metadata.labels, labels))
    return node_pb2.ForecastMoveRequest(vmi=vmi_ref(vmi), **forecast_settings(settings, vmi))


# -- how it goes -------------------------------------------------------------------------------------------------------


async def progress(call: Call) -> web.Response:
    """Of the last move of a VMI, from the node that its guest leaves or has left."""
    vmi = await call.vmi()
    state = vmi.status.migration_state
    if state is None or not state.source_node:
        raise Problem(404, f"VMI {call.name} has not been moved", name=call.name)
    node = await call.nodes.named(state.source_node)
    request = node_pb2.GetMoveRequest(vmi=vmi_ref(vmi), job_uid=state.migration_uid)
    move = (await node.call("GetMove", request)).move
    now_us = SystemClock().now().timestamp() * 1e6
    seen = MoveProgress(
        migration_uid=move.uid,
        mode=move.mode,
        total_bytes=move.total_bytes,
        processed_bytes=move.processed_bytes,
        remaining_bytes=move.remaining_bytes,
        bytes_per_second=move.bytes_per_second,
        dirty_bytes_per_second=move.dirty_bytes_per_second,
        iteration=move.iteration,
        downtime_milliseconds=move.downtime_ms,
        elapsed_seconds=max(((move.ended_us or now_us) - move.started_us) / 1e6, 0.0) if move.started_us else 0.0,
        ended=bool(move.ended_us),
        failed=move.failed,
        held=move.held,
        reason=move.reason,
    )
    return json_response(to_plain(seen))
