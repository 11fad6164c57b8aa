"""Port-forward, USB redirection and vsock: what the node is told to open, and what is refused before."""

from __future__ import annotations

import aiohttp
import pytest
from functional.api.rig import Rig, make_vm, make_vmi
from functional.api.test_http import BEARER, call
from functional.api.test_streams import connect

from virt_core.apis.devices import ClientPassthroughDevices
from virt_core.apis.vmi import VirtualMachineInstance
from virt_protos.node.v1 import node_pb2 as pb


async def echo(socket: aiohttp.ClientWebSocketResponse) -> None:
    await socket.send_bytes(b"ping")
    assert await socket.receive_bytes() == b"ping"


def refused(rig: Rig, url: str) -> int:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        connect(rig, url, echo)
    return caught.value.status


@pytest.mark.parametrize(
    ("path", "kind"),
    [("22", pb.STREAM_KIND_TCP), ("22/tcp", pb.STREAM_KIND_TCP), ("22/udp", pb.STREAM_KIND_UDP)],
)
def test_port_and_protocol_reach_the_node_and_no_address_does(rig: Rig, path: str, kind: int) -> None:
    connect(rig, rig.sub(f"portforward/{path}"), echo)
    (opening,) = rig.node.openings
    assert (opening.kind, opening.port, opening.vmi.uid) == (kind, 22, "uid-vm1")
    assert opening.cid == 0


def test_a_vm_that_runs_is_forwarded_to_its_vmi(rig: Rig) -> None:
    url = rig.sub("portforward/22/tcp", resource="virtualmachines")
    assert refused(rig, url) == 404
    rig.client.vms["vm1"] = make_vm()
    assert refused(rig, url) == 409
    rig.client.vms["vm1"].status.created = True
    connect(rig, url, echo)
    assert rig.node.openings[0].vmi.uid == "uid-vm1"


def test_what_can_not_be_forwarded(rig: Rig) -> None:
    for path in ("0", "65536", "x", "-1", "22/sctp", "22/TCP", "1e3", "%D9%A2%D9%A2"):
        assert refused(rig, rig.sub(f"portforward/{path}")) == 400, path
    rig.client.vmis["vm1"] = make_vmi(conditions=("Paused",))
    assert refused(rig, rig.sub("portforward/22")) == 409
    rig.client.vmis["vm1"] = make_vmi(phase="Scheduled")
    assert refused(rig, rig.sub("portforward/22")) == 400
    rig.client.vmis["vm1"] = make_vmi()
    rig.client.vmis["vm1"].status.interfaces = []
    assert refused(rig, rig.sub("portforward/22")) == 400
    assert not rig.node.openings


def test_datagrams_stay_whole(rig: Rig) -> None:
    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(b"x" * 65_508)
        await socket.send_bytes(b"y" * 65_507)
        assert await socket.receive_bytes() == b"y" * 65_507

    connect(rig, rig.sub("portforward/53/udp"), talk)


def test_session_is_preserved_on_request(rig: Rig) -> None:
    connect(rig, rig.sub("vnc?preserveSession=true"), echo)
    connect(rig, rig.sub("vnc?preserveSession=false"), echo)
    assert [opening.preserve_session for opening in rig.node.openings] == [True, False]
    assert refused(rig, rig.sub("vnc?preserveSession=maybe")) == 400


def test_usb_needs_a_machine_that_takes_it(rig: Rig) -> None:
    assert refused(rig, rig.sub("usbredir")) == 409
    rig.client.vmis["vm1"].spec.domain.devices.client_passthrough = ClientPassthroughDevices()
    connect(rig, rig.sub("usbredir"), echo)
    assert rig.node.openings[0].kind == pb.STREAM_KIND_USBREDIR


def test_vsock_goes_to_the_address_of_the_status(rig: Rig) -> None:
    assert refused(rig, rig.sub("vsock?port=5")) == 400
    vmi: VirtualMachineInstance = rig.client.vmis["vm1"]
    vmi.spec.domain.devices.autoattach_vsock = True
    vmi.status.vsock_cid = 7
    connect(rig, rig.sub("vsock?port=5"), echo)
    connect(rig, rig.sub("vsock?port=5&tls=false&cid=2"), echo)
    assert [(o.cid, o.port, o.tls) for o in rig.node.openings] == [(7, 5, True), (7, 5, False)]
    assert refused(rig, rig.sub("vsock")) == 400
    assert call(rig, "GET", rig.sub("vsock?port=5"), headers=BEARER)[0] == 400
