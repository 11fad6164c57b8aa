"""memorydump and removememorydump: they put a request into the VM's status; controllers do the rest."""

from __future__ import annotations

from aiohttp import web

from virt_api.problems import Problem, from_api
from virt_api.subresources import checks
from virt_api.subresources.bodies import MemoryDump
from virt_api.subresources.call import Call, accepted
from virt_api.subresources.volumes import GATE_DECLARATIVE, GATE_REQUESTS
from virt_api.subresources.writes import again_on_conflict, patch_for
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine, VirtualMachineMemoryDumpRequest
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError, NotFound

#: What a dump has beside the memory itself: headers, registers, the memory of devices.
_BESIDE = 100 << 20
_OVER = frozenset({names.DUMP_COMPLETED, names.DUMP_FAILED})


async def dump(call: Call) -> web.Response:
    if not (call.config.has(GATE_DECLARATIVE) or call.config.has(GATE_REQUESTS)):
        raise Problem(400, f"no memory dump is made: neither {GATE_DECLARATIVE} nor {GATE_REQUESTS} is enabled")
    asked = (await call.body(MemoryDump)).claim_name

    async def attempt() -> None:
        vm = await call.vm()
        claim = wanted_claim(vm, asked)
        found = await named_claim(call, claim)
        vmi = await call.vmi_of_vm()
        if vmi is None:
            raise Problem(409, f"VM {call.name} is not running")
        checks.running(vmi)
        check_claim(found, vmi)
        request = VirtualMachineMemoryDumpRequest(claim_name=claim, phase=names.DUMP_ASSOCIATING)
        await _store(call, vm, request)

    await again_on_conflict(attempt)
    return accepted()


async def remove(call: Call) -> web.Response:
    async def attempt() -> None:
        vm = await call.vm()
        request = vm.status.memory_dump_request
        if request is None:
            raise Problem(409, f"VM {call.name} has no claim for memory dumps")
        if request.remove:
            raise Problem(409, f"claim {request.claim_name} is being taken from VM {call.name} already")
        going = VirtualMachineMemoryDumpRequest(
            claim_name=request.claim_name, phase=names.DUMP_DISSOCIATING, remove=True
        )
        await _store(call, vm, going)

    await again_on_conflict(attempt)
    return accepted()


def wanted_claim(vm: VirtualMachine, asked: str) -> str:
    """Raises Problem 400 without a claim, 409 for another one or while a dump is made."""
    request = vm.status.memory_dump_request
    if request is None:
        if not asked:
            raise Problem(400, "claimName is required: the claim that takes the dump")
        return asked
    if asked and asked != request.claim_name:
        raise Problem(409, f"claim {request.claim_name} takes the VM's memory dumps; remove it before you name another")
    if request.remove or request.phase not in _OVER:
        raise Problem(409, f"a memory dump is under way ({request.phase}); wait until it is completed")
    return request.claim_name


def check_claim(claim: PersistentVolumeClaim, vmi: VirtualMachineInstance) -> None:
    """Raises Problem 409."""
    name = claim.metadata.name
    if claim.spec.volume_mode == names.VOLUME_MODE_BLOCK:
        raise Problem(409, f"claim {name} is a block device: a memory dump is a file, so it needs a filesystem")
    if claim.spec.access_modes == ["ReadOnlyMany"]:
        raise Problem(409, f"claim {name} can only be read")
    requests = claim.spec.resources.requests if claim.spec.resources is not None else {}
    have, need = parse_bytes(requests.get("storage", 0)), _memory(vmi) + _BESIDE
    if have < need:
        raise Problem(409, f"claim {name} asks for {have} bytes of storage; the dump needs {need}")


def _memory(vmi: VirtualMachineInstance) -> int:
    memory = vmi.spec.domain.memory
    if memory is not None and memory.guest is not None:
        return parse_bytes(memory.guest)
    return parse_bytes(vmi.spec.domain.resources.requests.get("memory", 0))


async def named_claim(call: Call, name: str) -> PersistentVolumeClaim:
    """Raises Problem 404."""
    try:
        return await call.kube.claim(call.namespace, name)
    except NotFound as error:
        raise Problem(404, f"there is no PersistentVolumeClaim {call.namespace}/{name}") from error
    except ApiError as error:
        raise from_api(error, name) from error


async def _store(call: Call, vm: VirtualMachine, request: VirtualMachineMemoryDumpRequest) -> None:
    # All of them: a merge would keep the times and the file of the dump before.
    empty = dict.fromkeys(("startTimestamp", "endTimestamp", "fileName", "message", "remove"))
    change = {"status": {"memoryDumpRequest": empty | to_plain(request)}}
    try:
        await call.kube.patch(vm, patch_for(vm, change, []), subresource="status")
    except ApiError as error:
        raise from_api(error, call.name, kind="virtualmachine") from error
