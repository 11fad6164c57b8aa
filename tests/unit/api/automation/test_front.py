"""The port in front of the gRPC server: bytes both ways, whose they are, and how many connections one may have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from virt_api.automation.front import Front, bound
from virt_api.automation.shares import Share

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WAIT_S = 5.0


class Rig:
    def __init__(self, share: Share) -> None:
        self.front = Front(share)
        self.port = 0
        #: Whose each message is, as the front says to the server behind.
        self.peers: list[str] = []
        self.clients: list[asyncio.StreamWriter] = []

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername").decode().lstrip("\0")
        while data := await reader.read(1024):
            self.peers.append(self.front.address_of(f"unix-abstract:{name}"))
            writer.write(data)
        writer.close()

    async def client(self, source: str = "127.0.0.1") -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
        self.clients.append(writer)
        return reader, writer


@asynccontextmanager
async def serving(share: Share) -> AsyncIterator[Rig]:
    rig = Rig(share)
    behind = await asyncio.start_unix_server(rig.echo, rig.front.inner)
    rig.port = await rig.front.listen(bound("127.0.0.1:0"))
    try:
        yield rig
    finally:
        for client in rig.clients:
            client.close()
        rig.front.stop()
        behind.close()


async def answers(client: Client) -> bool:
    """False: hung up."""
    reader, writer = client
    try:
        writer.write(b"x")
        await writer.drain()
        return await asyncio.wait_for(reader.read(1), WAIT_S) == b"x"
    except ConnectionError:
        return False


def run(share: Share, body: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        async with serving(share) as rig:
            await body(rig)

    asyncio.run(main())


def test_bytes_go_both_ways_and_the_address_is_known() -> None:
    async def body(rig: Rig) -> None:
        assert await answers(await rig.client("127.0.0.7"))
        assert rig.peers == ["127.0.0.7"]

    run(Share(4, 2, "connections"), body)


def test_one_address_has_its_share_and_others_theirs() -> None:
    async def body(rig: Rig) -> None:
        first = await rig.client()
        assert await answers(first)
        assert await answers(await rig.client())
        assert not await answers(await rig.client())
        assert await answers(await rig.client("127.0.0.2"))
        assert await answers(first)

    run(Share(8, 2, "connections"), body)


def test_when_all_is_taken_whoever_has_the_most_loses_the_oldest() -> None:
    async def body(rig: Rig) -> None:
        greedy = [await rig.client() for _ in range(3)]
        for client in greedy:
            assert await answers(client)
        modest = await rig.client("127.0.0.2")
        assert await answers(modest)
        assert await answers(await rig.client("127.0.0.3"))
        assert [await answers(client) for client in greedy] == [False, True, True]
        assert await answers(modest)

    run(Share(4, 3, "connections"), body)


def test_an_end_makes_room() -> None:
    async def body(rig: Rig) -> None:
        first = await rig.client()
        assert await answers(first)
        first[1].close()
        async with asyncio.timeout(WAIT_S):
            while not await answers(await rig.client()):
                pass

    run(Share(1, 1, "connections"), body)


def test_a_taken_port_is_one_sentence() -> None:
    with bound("127.0.0.1:0") as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen on {address}: "):
            bound(address)
