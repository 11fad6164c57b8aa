"""A connection to the loopback of an importer Pod, over the API server: what `kubectl port-forward` does, for one POST.

Nobody on the Pod network reaches the importer's port. The websocket carries two channels: bytes of the connection, and
one sentence if it cannot be had. The first message of each names the port.
"""

from __future__ import annotations

import asyncio
import re
from types import TracebackType

import aiohttp
from yarl import URL

from virt_api.problems import Problem
from virt_core import __version__
from virt_core.apis.pods import Pod
from virt_core.apis.registry import resource_of
from virt_core.kube.connect import Connection

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
_OPEN_S = 15.0
#: A device is zeroed before anything is written to it, and what came is made safe before the answer.
PATIENCE_S = 600.0
_ANSWER_BYTES = 64 << 10
#: What an importer says.
_CODES = frozenset({200, 400, 404, 411, 503})


class Forwarder:
    """Lives in the event loop. Speaks to the API server as virt-api itself."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ssl = connection.ssl_context() if connection.server.startswith("https:") else None
        self._session: aiohttp.ClientSession | None = None

    async def open(self, namespace: str, pod: str, port: int) -> Tunnel:
        """Raises Problem 503."""
        path = resource_of(Pod).path(namespace, pod, "portforward")
        url = URL(self._connection.server + path).with_query({"ports": str(port)})
        try:
            async with asyncio.timeout(_OPEN_S):
                socket = await self._open().ws_connect(
                    url,
                    protocols=(_PROTOCOL,),
                    headers=self._connection.headers(),
                    ssl=self._ssl if self._ssl is not None else True,
                    server_hostname=self._connection.tls_server_name or None,
                    max_msg_size=_ANSWER_BYTES,
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Problem(503, f"the importer cannot be reached over the API server: {error!r}") from error
        return Tunnel(socket)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"virt-api-uploads/{__version__}"},
                trust_env=False,
            )
        return self._session


class Tunnel:
    """One connection; what comes back is gathered beside what is sent."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self._socket = socket
        self._named: set[int] = set()
        self._received = bytearray()
        self._trouble = ""
        #: Done when the other side has answered, or has gone.
        self.ended = asyncio.create_task(self._gather())

    async def __aenter__(self) -> Tunnel:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.ended.cancel()
        await self._socket.close()

    @property
    def over(self) -> bool:
        """The other side has said something, or has gone: there is no use in sending more."""
        return bool(self._received) or self.ended.done()

    async def send(self, data: bytes) -> None:
        """Waits until it is taken. Raises Problem 504."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._socket.send_bytes(bytes([_DATA]) + data)
        except TimeoutError as error:
            raise Problem(504, f"the importer took nothing for {PATIENCE_S:.0f} s") from error
        except (aiohttp.ClientError, ConnectionError):
            return  # It has gone; `answer` says why.

    async def answer(self) -> tuple[int, str]:
        """Status and text. Raises Problem 502, 504."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait([self.ended])
        except TimeoutError as error:
            raise Problem(504, f"the importer did not answer within {PATIENCE_S:.0f} s") from error
        head, _, body = bytes(self._received).partition(b"\r\n\r\n")
        found = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        if found is None or int(found[1]) not in _CODES:
            raise Problem(503, self._trouble or "the importer ended the connection")
        return int(found[1]), body.decode(errors="replace").strip()

    async def _gather(self) -> None:
        """Until the answer is whole or the connection ends."""
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                break
            channel, data = message.data[0], message.data[1:]
            if channel not in self._named:
                self._named.add(channel)
                data = data[_PORT_BYTES:]
            if channel == _ERROR and data:
                self._trouble = f"the importer cannot be reached: {data[:1024].decode(errors='replace')}"
                return
            if channel == _DATA:
                self._received += data
            if len(self._received) > _ANSWER_BYTES or _is_whole(self._received):
                return


def _is_whole(answer: bytearray) -> bool:
    head, found, body = bytes(answer).partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(found) and length is not None and len(body) >= int(length[1])
