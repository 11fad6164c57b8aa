"""How far packets for a guest get: our own, answered by the machine's node, which looks and asks the guest."""

from __future__ import annotations

from aiohttp import web

from virt_api.problems import Problem
from virt_api.subresources.actions import vmi_ref
from virt_api.subresources.call import Call, json_response
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.networkview import NetworkReport, NetworkStation, NetworkWalk
from virt_protos.node.v1 import node_pb2

#: A machine that is not started yet may wait for its network.
_ON_A_NODE = (names.PHASE_SCHEDULED, names.PHASE_RUNNING)


async def report(call: Call) -> web.Response:
    vmi = await call.vmi()
    if vmi.status.phase not in _ON_A_NODE:
        state = vmi.status.phase or "unset"
        raise Problem(409, f"VMI {call.name} has no network on a node: its phase is {state}", name=call.name)
    node = await call.nodes.of(vmi)
    answer = await node.call("GetNetwork", node_pb2.VMIRequest(vmi=vmi_ref(vmi)))
    return json_response(to_plain(NetworkReport(interfaces=[_walk(found) for found in answer.walks])))


def _walk(found: node_pb2.NetworkWalk) -> NetworkWalk:
    return NetworkWalk(
        name=found.name,
        binding=found.binding,
        state=found.state,
        stops_at=found.stops_at,
        sentence=found.sentence,
        pod_addresses=list(found.pod_addresses),
        guest_addresses=list(found.guest_addresses),
        answered=list(found.answered),
        stations=[NetworkStation(name=each.name, state=each.state, seen=each.seen) for each in found.stations],
    )
