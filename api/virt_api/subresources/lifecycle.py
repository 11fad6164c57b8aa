"""VM start, stop and restart: reads, decides, writes; when somebody else was faster, once more from the beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from virt_api.problems import from_api
from virt_api.subresources import hibernate, strategies
from virt_api.subresources.bodies import RestartOptions, StartOptions, StopOptions
from virt_api.subresources.call import Call, accepted
from virt_api.subresources.strategies import Wish
from virt_api.subresources.writes import again_on_conflict, patch_for
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError
from virt_core.kube.patch import JsonPatch, op
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

Decide = Callable[[VirtualMachine, VirtualMachineInstance | None], Wish]


async def start(call: Call) -> web.Response:
    options = await call.body(StartOptions)
    if options.discard_state:
        await hibernate.discard(call, options.dry_run)
        if strategies.starts_anyway(await call.vm()):
            return accepted()
    return await _carry_out(call, lambda vm, vmi: strategies.start(vm, vmi, paused=options.paused), options.dry_run)


async def stop(call: Call) -> web.Response:
    options = await call.body(StopOptions)
    return await _carry_out(
        call, lambda vm, vmi: strategies.stop(vm, vmi, grace_s=options.grace_period), options.dry_run
    )


async def restart(call: Call) -> web.Response:
    options = await call.body(RestartOptions)
    return await _carry_out(
        call, lambda vm, vmi: strategies.restart(vm, vmi, grace_s=options.grace_period_seconds), options.dry_run
    )


async def _carry_out(call: Call, decide: Decide, dry_run: list[str]) -> web.Response:
    async def attempt() -> None:
        vm, vmi = await call.vm(), await call.vmi_of_vm()
        await _write(call, vm, vmi, decide(vm, vmi), dry_run)

    await again_on_conflict(attempt)
    return accepted()


async def _write(
    call: Call, vm: VirtualMachine, vmi: VirtualMachineInstance | None, wish: Wish, dry_run: list[str]
) -> None:
    if vmi is not None and wish.grace_s is not None:
        await _set_grace(call, vmi, wish.grace_s, dry_run)
    try:
        if wish.strategy is not None:
            await call.kube.patch(vm, patch_for(vm, {"spec": _strategy(vm, wish.strategy)}, dry_run))
        if wish.requests is not None:
            status = {"stateChangeRequests": to_plain(wish.requests)}
            await call.kube.patch(vm, patch_for(vm, {"status": status}, dry_run), subresource="status")
    except ApiError as error:
        if vmi is not None and wish.grace_s is not None:
            await _set_grace_back(call, vmi, dry_run)
        raise from_api(error, call.name, kind="virtualmachine") from error


def _strategy(vm: VirtualMachine, wanted: str) -> dict[str, Any]:
    """A VM that still says `running` goes on doing so."""
    if vm.spec.run_strategy:
        return {"runStrategy": wanted}
    return {"running": wanted == names.STRATEGY_ALWAYS}


async def _set_grace(call: Call, vmi: VirtualMachineInstance, grace_s: int | None, dry_run: list[str]) -> None:
    path = "/spec/terminationGracePeriodSeconds"
    change = op.remove(path) if grace_s is None else op.add(path, grace_s)
    patch = JsonPatch([op.test("/metadata/uid", vmi.metadata.uid), change])
    try:
        await call.kube.patch(vmi, patch_for(vmi, patch, dry_run))
    except ApiError as error:
        raise from_api(error, call.name) from error


async def _set_grace_back(call: Call, vmi: VirtualMachineInstance, dry_run: list[str]) -> None:
    try:
        await _set_grace(call, vmi, vmi.spec.termination_grace_period_seconds, dry_run)
    except Exception as error:
        log.warning("the grace period of a VMI could not be set back", vmi=vmi.metadata.name, error=str(error))
