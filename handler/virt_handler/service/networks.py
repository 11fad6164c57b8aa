"""The way of a machine's NICs, for virt-api: has virt-netsetup look, and `decisions.walks` make sense of what it saw.

To look puts a few frames into the guest and takes a process on the node for a moment. So one look serves for some
seconds, whoever asks; those who ask meanwhile wait for it; and of all machines of the node few are looked at at once,
so that there is always room for a machine that starts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

import grpc

from virt_core.apis.bindings import WIRED, binding_of
from virt_core.apis.devices import Interface
from virt_core.apis.netplan import NetObservation, NetReport
from virt_core.apis.networkview import NetworkWalk
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.rpc.status import RpcFailure, failed_precondition, unavailable
from virt_handler.decisions.netplans import NetworkError
from virt_handler.decisions.vocabulary import Task
from virt_handler.decisions.walkfacts import NicFacts
from virt_handler.decisions.walks import walk
from virt_handler.loop.sessions import Session
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2 as pb

FRESH_S = 5.0
#: virt-netsetup has room for many more, which are for machines that start.
MOST_AT_ONCE = 4
#: Less than virt-api waits.
_WAIT_S = 15.0
_MOST_NICS = 32

Observe = Callable[[str, VirtualMachineInstance, list[Interface]], NetReport]
Vmi = Callable[[str], VirtualMachineInstance | None]


class Networks:
    """Thread safe."""

    def __init__(self, vmi: Vmi, observe: Observe, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._vmi, self._observe, self._monotonic = vmi, observe, monotonic
        self._lock = threading.Lock()
        #: By Pod: when the look began, and what came of it, or will.
        self._looks: dict[str, tuple[float, Future[pb.GetNetworkResponse]]] = {}

    def of(self, session: Session) -> pb.GetNetworkResponse:
        """Raises RpcFailure."""
        look, is_ours = self._look(session.pod_uid)
        if is_ours:
            self._answer(session, look)
        try:
            return look.result(_WAIT_S)
        except FutureTimeout as error:
            raise unavailable(f"the network of VMI {session.key} was not looked at within {_WAIT_S:g} s") from error

    def _look(self, pod_uid: str) -> tuple[Future[pb.GetNetworkResponse], bool]:
        """A look that is fresh or under way, or a new one, which is the caller's to make."""
        now = self._monotonic()
        with self._lock:
            self._looks = {
                uid: known for uid, known in self._looks.items() if not known[1].done() or now - known[0] < FRESH_S
            }
            if pod_uid in self._looks:
                return self._looks[pod_uid][1], False
            if sum(not future.done() for _, future in self._looks.values()) >= MOST_AT_ONCE:
                message = f"{MOST_AT_ONCE} machines of this node are looked at already"
                raise RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
            future: Future[pb.GetNetworkResponse] = Future()
            self._looks[pod_uid] = (now, future)
            return future, True

    def _answer(self, session: Session, look: Future[pb.GetNetworkResponse]) -> None:
        try:
            look.set_result(self._make(session))
        except BaseException as error:
            # Nobody shall wait for a look that failed, nor take its failure for an answer later.
            with self._lock:
                self._looks.pop(session.pod_uid, None)
            look.set_exception(error)

    def _make(self, session: Session) -> pb.GetNetworkResponse:
        vmi = self._vmi(session.key)
        if vmi is None or vmi.metadata.uid != session.vmi_uid:
            raise failed_precondition(f"VMI {session.key} is not known on this node any more")
        nics = [nic for nic in vmi.spec.domain.devices.interfaces if nic.state != "absent"][:_MOST_NICS]
        seen, trouble = self._see(session, vmi, [nic for nic in nics if binding_of(nic) in WIRED])
        found = [walk(_facts(nic, session, seen.get(nic.name), trouble)) for nic in nics]
        return pb.GetNetworkResponse(walks=[_message(each) for each in found])

    def _see(
        self, session: Session, vmi: VirtualMachineInstance, nics: list[Interface]
    ) -> tuple[dict[str, NetObservation], str]:
        """What is seen, by the NIC's name, or why nothing is."""
        work = session.view().network
        if work.task is Task.FAILED:
            return {}, work.error
        if not nics:
            return {}, ""
        try:
            report = self._observe(session.pod_uid, vmi, nics)
        except NetworkError as error:
            return {}, str(error)
        return {each.name: each for each in report.observed}, ""


def _facts(nic: Interface, session: Session, seen: NetObservation | None, trouble: str) -> NicFacts:
    domain, binding = session.view().domain or launcher_pb2.Domain(), binding_of(nic)
    if binding not in WIRED:
        trouble = f"its binding, {binding or 'none'}, leads past the Pod's network, where nothing is seen of it"
    return NicFacts(
        name=nic.name,
        binding=binding,
        seen=seen,
        trouble=trouble,
        wanted=nic.state,
        model=nic.model or "virtio",
        card=next((each for each in domain.interfaces if each.name == nic.name), None),
        agent=domain.agent_connected,
        paused=domain.state == launcher_pb2.DOMAIN_STATE_PAUSED,
    )


def _message(found: NetworkWalk) -> pb.NetworkWalk:
    return pb.NetworkWalk(
        name=found.name,
        binding=found.binding,
        state=found.state,
        stops_at=found.stops_at,
        sentence=found.sentence,
        pod_addresses=found.pod_addresses,
        guest_addresses=found.guest_addresses,
        answered=found.answered,
        stations=[pb.NetworkStation(name=s.name, state=s.state, seen=s.seen) for s in found.stations],
    )
