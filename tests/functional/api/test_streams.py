"""Console and VNC: a websocket on one side, the node's stream on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from functional.api.rig import TOKEN, Rig, make_vmi

from virt_core.apis.devices import ClientPassthroughDevices

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PLAIN = "plain.kubevirt.io"

Talk = Callable[[aiohttp.ClientWebSocketResponse], Awaitable[None]]


def connect(rig: Rig, url: str, talk: Talk, protocols: tuple[str, ...] = (PLAIN,)) -> None:
    async def run() -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, headers=HEADERS, ssl=rig.tls(), protocols=protocols, max_msg_size=0) as socket,
        ):
            await talk(socket)

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("kind", ["console", "vnc"])
def test_bytes_travel_both_ways(rig: Rig, kind: str) -> None:
    rig.node.greeting = b"login: "

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        assert socket.protocol == PLAIN
        assert await socket.receive_bytes() == b"login: "
        await socket.send_str("text frames are ignored")
        await socket.send_bytes(b"root\n\x00\xff")
        assert await socket.receive_bytes() == b"root\n\x00\xff"

    connect(rig, rig.sub(kind), talk)
    assert rig.node.commands == [("open", "uid-vm1")]


def test_no_subprotocol_works_too(rig: Rig) -> None:
    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(b"x")
        assert await socket.receive_bytes() == b"x"

    connect(rig, rig.sub("console"), talk, protocols=())


def test_much_data_arrives_whole_and_in_order(rig: Rig) -> None:
    payload = bytes(range(256)) * 256
    rounds = 64

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        async def send() -> None:
            for _ in range(rounds):
                await socket.send_bytes(payload)

        sending = asyncio.create_task(send())
        received = bytearray()
        while len(received) < rounds * len(payload):
            received += await socket.receive_bytes()
        await sending
        assert bytes(received) == payload * rounds

    connect(rig, rig.sub("console"), talk)


def test_the_end_of_the_stream_closes_normally(rig: Rig) -> None:
    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(b"bye")
        message = await socket.receive()
        assert (message.type, socket.close_code) == (aiohttp.WSMsgType.CLOSE, 1000)

    connect(rig, rig.sub("console"), talk)


def test_a_failure_of_the_node_is_said_in_the_close_frame(rig: Rig) -> None:
    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(b"fail")
        message = await socket.receive()
        assert (message.data, message.extra) == (1011, "the device broke")

    connect(rig, rig.sub("console"), talk)


def test_a_guest_that_moves_says_so_in_the_close_frame(rig: Rig) -> None:
    """With a code of its own: the client knows by it that the guest can be had again."""

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(b"moved")
        message = await socket.receive()
        assert (message.data, message.extra) == (1012, "the guest has moved to another node")

    connect(rig, rig.sub("console"), talk)


def test_a_displaced_client_sees_the_bare_end_of_its_connection(rig: Rig) -> None:
    """What was read before arrives; then no close frame, which clients would take for the guest's end or a failure."""

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(b"mine")
        assert await socket.receive_bytes() == b"mine"
        await socket.send_bytes(b"displaced")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSED
        assert socket.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE

    connect(rig, rig.sub("console"), talk)


def answer_to_upgrade(rig: Rig, url: str) -> tuple[int, str]:
    """Status and message, where no websocket comes about."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}

    async def run() -> tuple[int, str]:
        headers = HEADERS | upgrade | {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=rig.tls()) as response,
        ):
            return response.status, (await response.json())["message"]

    return asyncio.run(run())


def test_one_usb_client_too_many_fails_the_handshake(rig: Rig) -> None:
    rig.client.vmis["vm1"].spec.domain.devices.client_passthrough = ClientPassthroughDevices()
    rig.node.full = True
    assert answer_to_upgrade(rig, rig.sub("usbredir")) == (503, "all 4 places are taken (websocket: bad handshake)")


def test_a_machine_without_a_serial_console_says_so_in_the_words_that_clients_know(rig: Rig) -> None:
    rig.client.vmis["vm1"].spec.domain.devices.autoattach_serial_console = False
    assert answer_to_upgrade(rig, rig.sub("console")) == (400, "No serial consoles are present.")


@pytest.mark.parametrize(("vmi", "code"), [("absent", 404), ("scheduled", 400), ("failed", 409), ("noserial", 400)])
def test_a_console_that_cannot_be_is_a_plain_answer(rig: Rig, vmi: str, code: int) -> None:
    noserial = make_vmi()
    noserial.spec.domain.devices.autoattach_serial_console = False
    rig.client.vmis |= {
        "scheduled": make_vmi(phase="Scheduled"),
        "failed": make_vmi(phase="Failed"),
        "noserial": noserial,
    }

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        raise AssertionError("connected")

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        connect(rig, rig.sub("console", vmi), talk)
    assert refused.value.status == code


def test_a_device_that_does_not_open_is_a_plain_answer(rig: Rig) -> None:
    rig.node.refuse = "no such device"

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        raise AssertionError("connected")

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        connect(rig, rig.sub("console"), talk)
    assert refused.value.status == 409


def test_without_an_upgrade_it_is_a_bad_request(rig: Rig) -> None:
    async def run() -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.get(rig.sub("console"), headers=HEADERS, ssl=rig.tls()) as response,
        ):
            return response.status

    assert asyncio.run(run()) == 400


def test_nobody_gets_no_console(rig: Rig) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session, session.ws_connect(rig.sub("console"), ssl=rig.tls()):
            raise AssertionError("connected")

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        asyncio.run(run())
    assert refused.value.status == 401


def test_a_client_that_does_not_read_stops_the_machine_from_being_read(rig: Rig) -> None:
    """The echo node takes no input once nobody takes its output: the sender blocks, our memory does not fill."""

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        sent = 0
        chunk = b"x" * 65536
        try:
            async with asyncio.timeout(3):
                while sent < 512 << 20:
                    await socket.send_bytes(chunk)
                    sent += len(chunk)
        except TimeoutError:
            pass
        assert sent < 200 << 20, "everything was swallowed"

    connect(rig, rig.sub("console"), talk)


def test_a_stop_says_goodbye(rig: Rig) -> None:
    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(b"x")
        assert await socket.receive_bytes() == b"x"
        rig.stop.set()
        message = await asyncio.wait_for(socket.receive(), 3)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1001)

    connect(rig, rig.sub("console"), talk)
