"""Subresources of a VMI that tell the node to do something and return."""

from __future__ import annotations

import math

from aiohttp import web

from virt_api.problems import Problem, from_api
from virt_api.subresources import checks
from virt_api.subresources.bodies import FreezeTimeout, Options, seconds
from virt_api.subresources.call import DRY_RUN_ALL, Call
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError, NotFound
from virt_protos.node.v1 import node_pb2

#: Longer than any backup takes to set its snapshots.
MAX_FREEZE_S = 3600


def vmi_ref(vmi: VirtualMachineInstance) -> node_pb2.VMIRef:
    return node_pb2.VMIRef(namespace=vmi.metadata.namespace, name=vmi.metadata.name, uid=vmi.metadata.uid)


async def pause(call: Call) -> web.Response:
    options, vmi = await call.body(Options), await call.vmi()
    checks.pause(vmi)
    return await _command("Pause", call, vmi, options)


async def unpause(call: Call) -> web.Response:
    options, vmi = await call.body(Options), await call.vmi()
    checks.unpause(vmi)
    await _no_snapshot_in_progress(call, vmi)
    return await _command("Unpause", call, vmi, options)


async def soft_reboot(call: Call) -> web.Response:
    vmi = await call.vmi()
    checks.soft_reboot(vmi)
    return await _command("SoftReboot", call, vmi, Options())


async def reset(call: Call) -> web.Response:
    vmi = await call.vmi()
    checks.started(vmi)
    return await _command("Reset", call, vmi, Options())


async def freeze(call: Call) -> web.Response:
    timeout, vmi = await call.body(FreezeTimeout), await call.vmi()
    checks.running(vmi)
    if timeout.unfreeze_timeout is None:
        raise Problem(400, "unfreezeTimeout is required; 0s means that nothing but unfreeze lets the filesystems go")
    given = seconds(timeout.unfreeze_timeout)
    if given > MAX_FREEZE_S:
        raise Problem(400, f"unfreezeTimeout must be at most {MAX_FREEZE_S} s, or 0s for no limit")
    wanted = math.ceil(given)
    node = await call.nodes.of(vmi)
    await node.call("Freeze", node_pb2.FreezeRequest(vmi=vmi_ref(vmi), unfreeze_timeout_seconds=wanted))
    return web.Response()


async def unfreeze(call: Call) -> web.Response:
    vmi = await call.vmi()
    checks.running(vmi)
    return await _command("Unfreeze", call, vmi, Options())


async def _command(method: str, call: Call, vmi: VirtualMachineInstance, options: Options) -> web.Response:
    if DRY_RUN_ALL not in options.dry_run:
        node = await call.nodes.of(vmi)
        await node.call(method, node_pb2.VMIRequest(vmi=vmi_ref(vmi)))
    return web.Response()


async def _no_snapshot_in_progress(call: Call, vmi: VirtualMachineInstance) -> None:
    """A snapshot pauses its machine and wants it so until it is done."""
    owner = next((owner for owner in vmi.metadata.owner_references if owner.kind == "VirtualMachine"), None)
    if owner is None:
        return
    try:
        vm = await call.kube.vm(call.namespace, owner.name)
    except NotFound:
        return  # A VM that is gone takes no snapshot.
    except ApiError as error:
        raise from_api(error, owner.name, kind="virtualmachine") from error
    if vm.metadata.uid == owner.uid and vm.status.snapshot_in_progress:
        raise Problem(409, f"snapshot {vm.status.snapshot_in_progress} of VM {owner.name} is in progress")
