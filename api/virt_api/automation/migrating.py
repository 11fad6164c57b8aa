"""Migrate and CancelMigration: the job is made, read and deleted in the caller's name, and so is read how it goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from grpc import StatusCode

from virt_api.automation.failures import Failure, from_api
from virt_api.automation.objects import VM, VMI, Target
from virt_api.automation.userapi import Call, UserApi
from virt_core.apis import movewords, names
from virt_core.apis.base import decode
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.moveview import LAST_FIGURES_WITHIN_S, MoveForecast, MoveProgress
from virt_core.kube.errors import ApiError, NotFound, Undecodable
from virt_core.rpc.status import failed_precondition
from virt_protos.automation.v1 import automation_pb2 as pb

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 3600.0
LOOK_EVERY_S = 0.5
#: So much before the caller's own deadline, so that the answer still says how far it is.
_EARLIER_S = 0.25
_PLURAL = "virtualmachineinstancemigrations"
_DRY = {"dryRun": "All"}


@dataclass(frozen=True, slots=True)
class Caller:
    """The API server, as whoever calls sees it."""

    api: UserApi
    token: str

    async def send(self, call: Call) -> bytes:
        return await self.api.send(self.token, call)


async def migrate(
    caller: Caller, target: Target, request: pb.MigrateRequest, within_s: float
) -> AsyncGenerator[pb.MigrateProgress, None]:
    """Raises Failure, ApiError."""
    try:
        answer = await caller.send(_wish(target, request))
    except ApiError as error:
        raise from_api(error, verb=True) from error
    if request.dry_run:
        yield _foreseen(target, answer)
        return
    job = _read(answer, Job)
    async for step in _follow(caller, job, max(within_s - _EARLIER_S, 0.05)):
        yield step


def _wish(target: Target, request: pb.MigrateRequest) -> Call:
    selector = dict(request.added_node_selector)
    if target.resource is VM:
        options: dict[str, Any] = {"addedNodeSelector": selector} if selector else {}
        if request.dry_run:
            options["dryRun"] = [_DRY["dryRun"]]
        path = VM.sub_path(target.namespace, target.name, "migrate")
        return Call("PUT", path, {}, msgspec.json.encode(options))
    spec = {"vmiName": target.name, **({"addedNodeSelector": selector} if selector else {})}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": f"{target.name[:200]}-", "namespace": target.namespace},
        "spec": spec,
    }
    query = _DRY if request.dry_run else {}
    return Call("POST", _path(target.namespace), query, msgspec.json.encode(body))


def _foreseen(target: Target, answer: bytes) -> pb.MigrateProgress:
    """Only the verb of a VirtualMachine forecasts; of an instance alone it is known that it could be moved."""
    if target.resource is not VM:
        return pb.MigrateProgress(done=True, succeeded=True, message=f"{target} could be moved")
    found = _read(answer, MoveForecast) if answer.strip() else MoveForecast()
    forecast = pb.MoveForecast(
        verdict=found.verdict,
        message=found.message,
        memory_bytes=found.memory_bytes,
        disk_bytes=found.disk_bytes,
        dirty_bytes_per_second=found.dirty_bytes_per_second,
        bandwidth_bytes_per_second=found.bandwidth_bytes_per_second,
        expected_ms=round(found.expected_seconds * 1000),
        expected_downtime_ms=found.expected_downtime_milliseconds,
    )
    return pb.MigrateProgress(done=True, succeeded=True, message=found.message, forecast=forecast)


async def _follow(caller: Caller, job: Job, within_s: float) -> AsyncGenerator[pb.MigrateProgress, None]:
    loop = asyncio.get_running_loop()
    began, last = loop.time(), pb.MigrateProgress()
    while True:
        try:
            job = _read(await caller.send(Call("GET", _path(job.metadata.namespace, job.metadata.name))), Job)
        except NotFound:
            raise failed_precondition(f"migration {job.metadata.name} was given up: somebody has deleted it") from None
        over = job.status.phase in names.FINAL_PHASES
        seen = await _seen(caller, job, began + within_s)
        step = _step(job, seen, over)
        elapsed = loop.time() - began
        if step != last:
            last = pb.MigrateProgress()
            last.CopyFrom(step)
            step.elapsed_ms = int(elapsed * 1000)
            yield step
        if over:
            return
        if elapsed >= within_s:
            message = f"migration {job.metadata.name} is not over after {elapsed:.0f} s: {last.message}"
            raise Failure(StatusCode.DEADLINE_EXCEEDED, message)
        await asyncio.sleep(min(LOOK_EVERY_S, max(within_s - elapsed, 0.01)))


def _step(job: Job, seen: MoveProgress | None, over: bool) -> pb.MigrateProgress:
    state, good = job.status.migration_state, job.status.phase == names.MIGRATION_SUCCEEDED
    message = movewords.line(job, seen)
    if over:
        message = movewords.success(job, seen) if good else movewords.failure(job)
    return pb.MigrateProgress(
        done=over,
        succeeded=good,
        message=message,
        phase=job.status.phase,
        job_name=job.metadata.name,
        job_uid=job.metadata.uid,
        source_node=state.source_node if state is not None else "",
        target_node=state.target_node if state is not None else "",
        figures=_figures(seen) if seen is not None else None,
    )


def _figures(seen: MoveProgress) -> pb.MoveFigures:
    return pb.MoveFigures(
        mode=seen.mode,
        total_bytes=seen.total_bytes,
        processed_bytes=seen.processed_bytes,
        remaining_bytes=seen.remaining_bytes,
        bytes_per_second=seen.bytes_per_second,
        dirty_bytes_per_second=seen.dirty_bytes_per_second,
        iteration=seen.iteration,
        downtime_ms=seen.downtime_milliseconds,
    )


async def _seen(caller: Caller, job: Job, until: float) -> MoveProgress | None:
    """How it goes now, or how it ended."""
    if job.status.phase not in {names.MIGRATION_RUNNING, *names.FINAL_PHASES}:
        return None
    loop = asyncio.get_running_loop()
    deadline = min(loop.time() + LAST_FIGURES_WITHIN_S, until)
    while True:
        seen = await _progress(caller, job)
        known = job.status.phase != names.MIGRATION_SUCCEEDED or seen is None or seen.ended
        if known or loop.time() >= deadline:
            return seen
        await asyncio.sleep(LOOK_EVERY_S)


async def _progress(caller: Caller, job: Job) -> MoveProgress | None:
    """None: nobody can say just now, or the caller may not know."""
    path = VMI.sub_path(job.metadata.namespace, job.spec.vmi_name, "migrationprogress")
    try:
        seen = _read(await caller.send(Call("GET", path)), MoveProgress)
    except ApiError:
        return None
    return seen if seen.migration_uid == job.metadata.uid else None


async def cancel(caller: Caller, target: Target, *, dry_run: bool) -> str:
    """The name of the job that is given up. Raises Failure, ApiError."""
    query = {"labelSelector": f"{names.LABEL_MIGRATION_VMI_NAME}={target.name}"}
    found = _read(await caller.send(Call("GET", _path(target.namespace), query)), _Jobs)
    for job in found.items:
        if job.spec.vmi_name == target.name and job.status.phase not in names.FINAL_PHASES:
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": job.metadata.uid}}
            path = _path(target.namespace, job.metadata.name)
            await caller.send(Call("DELETE", path, _DRY if dry_run else {}, msgspec.json.encode(options)))
            return job.metadata.name
    raise failed_precondition(f"no migration of {target} is under way")


class _Jobs(msgspec.Struct):
    items: list[Job] = []


def _path(namespace: str, name: str = "") -> str:
    path = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{namespace}/{_PLURAL}"
    return f"{path}/{name}" if name else path


def _read(body: bytes, cls: type[T]) -> T:
    try:
        return decode(body, cls)
    except msgspec.MsgspecError as error:
        raise Undecodable(f"the API server's answer about a migration: {error}") from error
