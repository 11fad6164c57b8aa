"""evacuate/cancel: a machine that was told to leave its node may stay."""

from __future__ import annotations

from aiohttp import web

from virt_api.problems import Problem, from_api
from virt_api.subresources.bodies import EvacuateCancelOptions
from virt_api.subresources.call import Call
from virt_api.subresources.writes import patch_for
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError, NotFound
from virt_core.kube.patch import JsonPatch, op


async def cancel_of_vm(call: Call) -> web.Response:
    options, vm = await call.body(EvacuateCancelOptions), await call.vm()
    if not vm.status.created:
        raise Problem(409, f"VM {call.name} is not running", name=call.name, kind="virtualmachine")
    return await _cancel(call, await call.vmi(), options)


async def cancel_of_vmi(call: Call) -> web.Response:
    options = await call.body(EvacuateCancelOptions)
    return await _cancel(call, await call.vmi(), options)


async def _cancel(call: Call, vmi: VirtualMachineInstance, options: EvacuateCancelOptions) -> web.Response:
    """virt-controller gives up the job that was made for it."""
    leaving = vmi.status.evacuation_node_name
    if options.evacuation_node_name and options.evacuation_node_name != (leaving or vmi.status.node_name):
        return web.Response()
    await _not_drained(call, leaving or vmi.status.node_name)
    if not leaving:
        return web.Response()
    path = "/status/evacuationNodeName"
    patch = JsonPatch([op.test(path, leaving), op.remove(path)])
    try:
        await call.kube.patch(vmi, patch_for(vmi, patch, options.dry_run))
    except ApiError as error:
        raise from_api(error, call.name) from error
    return web.Response()


async def _not_drained(call: Call, name: str) -> None:
    """On a node that is being drained, the machine would be told to leave again at once."""
    if not name:
        return
    key = call.config.migrations.node_drain_taint_key
    try:
        node = await call.kube.node(name)
    except NotFound:
        return
    except ApiError as error:
        raise from_api(error, name) from error
    if any(taint.key == key for taint in node.spec.taints):
        raise Problem(400, f"node {name} is being drained: it carries the taint {key}")
