"""hibernate: puts the wish into the VM's status; controllers save the machine's state and end it."""

from __future__ import annotations

from aiohttp import web
from msgspec.structs import replace

from virt_api.problems import Problem, from_api
from virt_api.subresources import checks
from virt_api.subresources.bodies import Hibernate
from virt_api.subresources.call import Call, accepted
from virt_api.subresources.memorydump import check_claim, named_claim
from virt_api.subresources.volumes import GATE_DECLARATIVE, GATE_REQUESTS
from virt_api.subresources.writes import again_on_conflict, patch_for
from virt_core.apis import hibernation as words
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.facts import run_strategy
from virt_core.apis.hibernation import VirtualMachineHibernation
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError

_STRATEGIES = frozenset({names.STRATEGY_ALWAYS, names.STRATEGY_MANUAL, names.STRATEGY_RERUN_ON_FAILURE})


async def hibernate(call: Call) -> web.Response:
    if not (call.config.has(GATE_DECLARATIVE) or call.config.has(GATE_REQUESTS)):
        raise Problem(400, f"no machine is hibernated: neither {GATE_DECLARATIVE} nor {GATE_REQUESTS} is enabled")
    options = await call.body(Hibernate)

    async def attempt() -> None:
        vm, vmi = await call.vm(), await call.vmi_of_vm()
        if vmi is None:
            raise Problem(409, f"VM {call.name} is not running")
        check(vm, vmi, options.claim_name)
        if options.claim_name:
            check_claim(await named_claim(call, options.claim_name), vmi)
        wish = VirtualMachineHibernation(phase=words.REQUESTED, claim_name=options.claim_name, vmi_uid=vmi.metadata.uid)
        await store(call, vm, wish, options.dry_run)

    await again_on_conflict(attempt)
    return accepted()


def check(vm: VirtualMachine, vmi: VirtualMachineInstance, claim: str) -> None:
    """Raises Problem 409."""
    checks.running(vmi)
    name, strategy = vm.metadata.name, run_strategy(vm)
    if strategy not in _STRATEGIES:
        raise Problem(409, f"runStrategy {strategy} does not allow VM {name} to be hibernated")
    if vm.status.hibernation is not None and vm.status.hibernation.phase in words.UNDER_WAY:
        raise Problem(409, f"VM {name} is being hibernated already")
    if vm.status.snapshot_in_progress:
        raise Problem(409, f"snapshot {vm.status.snapshot_in_progress} of VM {name} is in progress")
    if vm.status.state_change_requests:
        raise Problem(409, f"VM {name} is being stopped or started")
    move = vmi.status.migration_state
    if move is not None and not move.completed and not move.failed:
        raise Problem(409, f"VM {name} is being migrated")
    if why := words.obstacle_now(vmi):
        raise Problem(409, f"VM {name} cannot be hibernated: {why}")
    if any(c.type == names.CONDITION_RESTART_REQUIRED and c.status == names.TRUE for c in vm.status.conditions):
        raise Problem(409, f"VM {name} has changes that wait for a restart, so its state would not fit them later")
    if claim and claim == _resumed_from(vmi):
        raise Problem(409, f"claim {claim} is in the machine's Pod since it went on from it; name another")


def _resumed_from(vmi: VirtualMachineInstance) -> str:
    try:
        found = words.resumption(vmi)
    except ValueError:
        return ""
    return found.claim if found is not None else ""


async def store(call: Call, vm: VirtualMachine, state: VirtualMachineHibernation, dry_run: list[str]) -> None:
    # All fields: a merge would keep those of the state before.
    empty = dict.fromkeys(to_plain(vm.status.hibernation) if vm.status.hibernation is not None else ())
    change = {"status": {"hibernation": empty | to_plain(state)}}
    try:
        await call.kube.patch(vm, patch_for(vm, change, dry_run), subresource="status")
    except ApiError as error:
        raise from_api(error, call.name, kind="virtualmachine") from error


async def discard(call: Call, dry_run: list[str]) -> None:
    """Lets go of the state that the next start would go on from. Raises Problem 409 when there is none."""

    async def attempt() -> None:
        vm, vmi = await call.vm(), await call.vmi_of_vm()
        state = vm.status.hibernation
        if state is None or state.phase not in words.KEPT:
            raise Problem(409, f"VM {call.name} has no saved state to discard")
        if vmi is not None and vmi.status.phase == names.PHASE_RUNNING:
            raise Problem(409, f"VM {call.name} is already running")
        await store(call, vm, replace(state, phase=words.DISCARDED), dry_run)

    await again_on_conflict(attempt)
