"""The machines, their launchers, libvirt and the wire. What a launcher chooses is asked of its own code."""

from __future__ import annotations

from collections.abc import Iterator

from virt_launcher.hypervisor.ports import Facts, State
from virt_launcher.moves.fate import Begin, Cancel, Fate, after_daemon, begin, cancel, is_held

from .programs import Next
from .world import ALIVE, ENDED, FALLS, FILLS, LEFT, NONE, RUNS, STANDS, Move, World

_FACTS = {RUNS: Facts(State.RUNNING), STANDS: Facts(State.PAUSED, "Migration"), LEFT: Facts(State.SHUTOFF, "Migrated")}


def source_alive(world: World) -> bool:
    return world.source_pod in ("runs", "ends")


def target_alive(world: World) -> bool:
    return world.target_pod in ALIVE


# -- calls that arrive -------------------------------------------------------------------------------------------------


def calls(world: World) -> Iterator[Next]:
    for call in world.to_source:
        rest = world._replace(to_source=world.to_source - {call})
        after = _at_source(rest, *call) if source_alive(world) else rest
        yield f"source launcher: {call[0]}", after
        if world.faults:
            yield f"lost: {call[0]}", rest._replace(faults=world.faults - 1)
    for what in world.to_target:
        rest = world._replace(to_target=world.to_target - {what})
        for after in _at_target(rest, what) if target_alive(world) else (rest,):
            yield f"target launcher: {what}", after


def _at_source(world: World, what: str, uid: str) -> World:
    if what == "migrate":
        return _leave(world, uid)
    if what == "cancel-move":
        return _cancel(world, uid)
    if what in ("settle-stays", "settle-gone"):
        return _settle(world, uid, gone=what == "settle-gone")
    if what == "kill" and world.source in (RUNS, STANDS):
        return _ended(world)
    if what == "delete" and world.source not in (RUNS, STANDS):
        return world._replace(source_pod="over")
    return world


def _ended(world: World) -> World:
    return _call_over(world)._replace(source=ENDED, move=_over(world.move, failed=True))


def _over(move: Move | None, failed: bool, abort: str = "") -> Move | None:
    if move is None or move.over:
        return move
    return move._replace(over=True, failed=failed, abort=abort or move.abort, held=False)


def _call_over(world: World) -> World:
    """libvirt's call is over: the connection with it. What flies may still arrive."""
    return world._replace(call="", connected=False)


def _leave(world: World, uid: str) -> World:
    under_way = world.move is not None and not world.move.over
    if begin(uid, world.begun | world.given_up, under_way) is not Begin.NOW or world.source != RUNS:
        return world
    world = world._replace(begun=world.begun | {uid}, move=Move(uid), answer="")
    open_way = world.s_up and world.t_up and world.entrance == uid == world.exit
    if not open_way or not target_alive(world) or world.target != NONE:
        return world._replace(move=_over(world.move, failed=True))
    return world._replace(call="copies", connected=True, question="", target=FILLS, used=True)


def _cancel(world: World, uid: str) -> World:
    current = world.move.uid if world.move is not None and not world.move.over else ""
    how = cancel(uid, world.begun, current)
    if how is Cancel.DECLINE:
        declined = Move(uid, over=True, failed=True, abort="Succeeded")
        return world._replace(given_up=world.given_up | {uid}, move=declined)
    if how is not Cancel.ABORT or world.move is None:
        return world
    if world.call != "copies":
        return world._replace(move=world.move._replace(abort="Failed"))
    return _stays(world, "Succeeded")


def _stays(world: World, abort: str = "") -> World:
    """libvirt gives the move up: the guest goes on here."""
    move = _over(world.move, failed=True, abort=abort)
    return _call_over(world)._replace(source=RUNS, move=move)


def _settle(world: World, uid: str, *, gone: bool) -> World:
    if world.move is None or world.move.uid != uid or not world.move.held:
        return world
    return _ended(world) if gone else _stays(world)


def _at_target(world: World, what: str) -> Iterator[World]:
    if what == "prepare-target" and world.t_up:
        uid = _wanted(world)
        yield world._replace(prepared="done", exit=uid, used=False) if uid else world
        if world.faults and not world.exit:
            yield world._replace(prepared="hopeless", faults=world.faults - 1)
    elif what == "kill" and world.target in (FILLS, FALLS, RUNS):
        yield world._replace(target=ENDED if world.target == RUNS else NONE, connected=False)
    elif what == "delete" and world.target not in (FILLS, FALLS, RUNS):
        yield world._replace(target_pod="over", connected=False)
    else:
        yield world


def _wanted(world: World) -> str:
    from virt_handler.decisions.moving import under_way

    from .world import vmi_of

    seen = world.t_vmi if world.t_vmi is not None else world.vmi
    move = under_way(vmi_of(seen)) if seen is not None else None
    return move.migration_uid if move is not None else ""


# -- libvirt and QEMU --------------------------------------------------------------------------------------------------


def moves(world: World) -> Iterator[Next]:
    yield from _goes_on(world)
    yield from _loses(world)
    yield from _arrives(world)
    yield from _ends(world)


def _goes_on(world: World) -> Iterator[Next]:
    if world.call == "copies" and world.connected and world.target == FILLS:
        yield "the guest stops for the switch", world._replace(call="stopped", source=STANDS)
    if world.call == "stopped" and world.connected:
        yield "the question is asked", world._replace(call="asked", question="flies")
    if world.call == "asked" and world.answer == "yes" and not _is_held(world):
        done = world._replace(source=LEFT, move=_over(world.move, failed=False), answer="")
        yield "the answer is heard", _call_over(done)
    if world.call and world.connected and world.target == NONE and world.question != "flies" and world.answer != "yes":
        yield "the other side says no", _stays(world)


def _is_held(world: World) -> bool:
    return world.move is not None and world.move.held


def _loses(world: World) -> Iterator[Next]:
    """The source's launcher sees that the way on has ended."""
    if not world.call or world.connected or _is_held(world) or world.move is None:
        return
    if is_held(False, world.source == STANDS):
        yield "the machine is held", world._replace(move=world.move._replace(held=True))
    else:
        yield "the loss is passed on", _stays(world)
    if world.call == "stopped":
        yield "its memory is lost on the way, so libvirt does not ask", _stays(world)


def _arrives(world: World) -> Iterator[Next]:
    if world.question == "flies":
        if world.target == FILLS and target_alive(world):
            yield "the question is heard", world._replace(question="", target=RUNS, answer="yes")
        if not world.connected:
            yield "the question is lost", world._replace(question="")
    if world.answer == "yes" and not world.connected:
        yield "the answer is lost", world._replace(answer="")
    if world.target == FILLS and not world.connected and world.question != "flies":
        yield "the target's libvirt gives up", world._replace(target=FALLS)
    if world.target == FALLS:
        yield "the target's QEMU has ended", world._replace(target=NONE)


def _ends(world: World) -> Iterator[Next]:
    """A launcher ends with its machine, a Pod with its launcher."""
    if world.source in (LEFT, ENDED) and world.source_pod == "runs":
        yield "the source's launcher ends", world._replace(source_pod="left")
    if world.target == ENDED and world.target_pod == "runs":
        yield "the target's launcher ends", world._replace(target_pod="over")
    if world.source_pod == "ends":
        yield "the source's Pod ends", _source_killed(world)
    if world.target_pod == "evicted":
        yield "the target's Pod ends", _target_killed(world)._replace(excused=world.excused or world.target == RUNS)
    if world.target_pod == "ends":
        yield "the target's Pod ends", _target_killed(world)
    if world.target_pod == "over":
        yield "the target's Pod is removed", world._replace(target_pod="gone")


def _source_killed(world: World) -> World:
    return _call_over(world)._replace(source=NONE if world.source != LEFT else LEFT, source_pod="over")


def _target_killed(world: World) -> World:
    return world._replace(target=NONE, target_pod="over", connected=False)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def cut(world: World) -> Iterator[Next]:
    if world.faults and world.connected:
        yield "the network is cut", world._replace(connected=False, faults=world.faults - 1)


def kills(world: World) -> Iterator[Next]:
    """A launcher dies with its machine; the guest is lost by that if it was there."""
    if not world.faults:
        return
    world = world._replace(faults=world.faults - 1)
    if source_alive(world):
        excused = world.excused or world.target != RUNS
        yield "the source's launcher is killed", _source_killed(world)._replace(excused=excused)
    if target_alive(world):
        excused = world.excused or world.target == RUNS
        yield "the target's launcher is killed", _target_killed(world)._replace(excused=excused)


def eviction(world: World) -> Iterator[Next]:
    if world.faults and world.target_pod == "runs":
        yield "the target's Pod is deleted", world._replace(target_pod="evicted", faults=world.faults - 1)


def daemon(world: World) -> Iterator[Next]:
    if world.faults:
        yield from _daemon_dies(world._replace(faults=world.faults - 1))


def _daemon_dies(world: World) -> Iterator[Next]:
    if not world.call or world.move is None or world.move.held:
        return
    ends = [RUNS] if world.call == "copies" else [STANDS] if world.call == "asked" else [RUNS, STANDS]
    for machine in ends:
        fate = after_daemon(_FACTS[machine], was_paused=False)
        after = _call_over(world)._replace(source=machine)
        if fate is Fate.OPEN:
            after = after._replace(call="asked", move=world.move._replace(held=True))
        else:
            after = after._replace(move=_over(world.move, failed=fate is Fate.STAYS))
        yield f"the source's libvirt is killed: {machine}", after
