"""The agent's endpoint over real TLS: who may use it, logs, exec, attach, port-forward."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from functional.local.node.support import Node, eventually, shell

from virt_core.apis.pods import Pod
from virt_core.runtime.clock import SystemClock
from virt_local.node.server.app import Tls, build_app, run_server
from virt_local.node.server.lookup import Lookup
from virt_local.up import pki

pytestmark = pytest.mark.root
PORT = 10250
NAME = "kube-apiserver-kubelet-client"


class Directory:
    def __init__(self, node: Node) -> None:
        self._node = node

    def find(self, namespace: str, name: str) -> Pod | None:
        return next((pod for pod in self.all() if pod.metadata.name == name), None)

    def all(self) -> list[Pod]:
        return [pod for uid in self._node.pods.uids() if (pod := self._node.pods.get(uid)) is not None]


class Endpoint:
    def __init__(self, directory: Path) -> None:
        self.ca = pki.ensure_authority(directory, "ca", "test CA")
        self.directory = directory
        pki.ensure_tls_dir(directory / "server", self.ca, pki.Leaf("node", names=("127.0.0.1",), usage=(pki.SERVER,)))

    def tls(self) -> Tls:
        server = self.directory / "server"
        return Tls(str(server / "tls.crt"), str(server / "tls.key"), str(self.ca.path), NAME)

    def client(self, name: str | None = NAME) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca.path))
        if name is not None:
            path = pki.ensure_tls_dir(self.directory / name, self.ca, pki.Leaf(name))
            context.load_cert_chain(path / "tls.crt", path / "tls.key")
        return context

    @asynccontextmanager
    async def session(self, name: str | None = NAME) -> AsyncIterator[aiohttp.ClientSession]:
        connector = aiohttp.TCPConnector(ssl=self.client(name))
        async with aiohttp.ClientSession(f"https://127.0.0.1:{PORT}", connector=connector) as session:
            yield session


@pytest.fixture
def endpoint(node: Node, tmp_path: Path) -> Iterator[Endpoint]:
    made = Endpoint(tmp_path)
    runtime = node.runtime
    assert runtime is not None
    lookup = Lookup(Directory(node), runtime.manager.worker.state, runtime.containers.bundle)
    netns = runtime.layout.root / "netns"
    app: web.Application = build_app(lookup, runtime.containers.runc, netns, client_name=NAME, now=SystemClock().now)
    stop = threading.Event()
    thread = threading.Thread(target=run_server, args=(app, "127.0.0.1", PORT, made.tls(), stop))
    thread.start()
    try:
        eventually(lambda: asyncio.run(reaches(made)))
        yield made
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()


async def reaches(endpoint: Endpoint) -> bool:
    try:
        return (await get(endpoint, "/healthz"))[0] == 200
    except aiohttp.ClientConnectionError:
        return False


async def get(endpoint: Endpoint, path: str, name: str | None = NAME) -> tuple[int, str]:
    async with endpoint.session(name) as session, session.get(path) as response:
        return response.status, await response.text()


def test_only_the_api_server_gets_in(node: Node, endpoint: Endpoint) -> None:
    assert asyncio.run(get(endpoint, "/healthz")) == (200, "ok")
    assert asyncio.run(get(endpoint, "/pods", "system:node:node1"))[0] == 403
    with pytest.raises(aiohttp.ClientError):
        asyncio.run(get(endpoint, "/pods", None))


def test_logs_whole_tail_stamped_limited_and_previous(node: Node, endpoint: Endpoint) -> None:
    uid = node.run({"containers": [shell("for i in 1 2 3; do echo line$i; done; sleep 100")]}, name="p")
    node.wait_phase(uid, "Running")
    eventually(lambda: node.log(uid).count("\n") == 3)
    base = "/containerLogs/default/p/c"
    assert asyncio.run(get(endpoint, base)) == (200, "line1\nline2\nline3\n")
    assert asyncio.run(get(endpoint, f"{base}?tailLines=2")) == (200, "line2\nline3\n")
    assert asyncio.run(get(endpoint, f"{base}?limitBytes=8")) == (200, "line1\nli")
    stamped = asyncio.run(get(endpoint, f"{base}?timestamps=true&tailLines=1"))[1]
    assert stamped.split(" ")[0].endswith("Z")
    assert stamped.endswith(" line3\n")
    assert asyncio.run(get(endpoint, f"{base}?sinceTime=2099-01-01T00:00:00Z")) == (200, "")
    code, body = asyncio.run(get(endpoint, f"{base}?previous=true"))
    assert (code, json.loads(body)["message"]) == (400, 'previous terminated container "c" in pod "p" not found')
    assert asyncio.run(get(endpoint, "/containerLogs/default/p/x"))[0] == 404
    assert asyncio.run(get(endpoint, f"{base}?tailLines=-1"))[0] == 400


def test_follow_ends_with_the_container(node: Node, endpoint: Endpoint) -> None:
    uid = node.run({"containers": [shell("for i in 1 2 3; do echo $i; sleep 0.3; done")]}, name="p")
    node.wait_phase(uid, "Running")
    assert asyncio.run(get(endpoint, "/containerLogs/default/p/c?follow=true")) == (200, "1\n2\n3\n")


async def talk(
    endpoint: Endpoint,
    path: str,
    speak: Callable[[aiohttp.ClientWebSocketResponse], Awaitable[None]],
    protocol: str = "v5.channel.k8s.io",
) -> tuple[dict[int, bytes], dict[str, Any]]:
    """What came on each channel, and the final status."""
    seen: dict[int, bytes] = {}
    async with endpoint.session() as session, session.ws_connect(path, protocols=[protocol]) as ws:
        await speak(ws)
        async for message in ws:
            assert message.type is aiohttp.WSMsgType.BINARY
            seen[message.data[0]] = seen.get(message.data[0], b"") + message.data[1:]
    return seen, json.loads(seen.pop(3, b"{}"))


async def silent(_: aiohttp.ClientWebSocketResponse) -> None:
    return


def test_exec_separates_streams_and_reports_the_exit_code(node: Node, endpoint: Endpoint) -> None:
    node.wait_phase(
        node.run({"containers": [shell("sleep 100", env=[{"name": "E", "value": "v"}])]}, name="p"), "Running"
    )
    query = "command=sh&command=-c&command=echo+out+$E;+echo+err+>%262;+exit+3&output=1&error=1"
    seen, status = asyncio.run(talk(endpoint, f"/exec/default/p/c?{query}", silent))
    assert seen == {1: b"out v\n", 2: b"err\n"}
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


def test_exec_reads_its_input_to_the_end(node: Node, endpoint: Endpoint) -> None:
    node.wait_phase(node.run({"containers": [shell("sleep 100")]}, name="p"), "Running")

    async def speak(ws: aiohttp.ClientWebSocketResponse) -> None:
        await ws.send_bytes(b"\0hello ")
        await ws.send_bytes(b"\0there")
        await ws.send_bytes(b"\xff\0")

    seen, status = asyncio.run(talk(endpoint, "/exec/default/p/c?command=cat&input=1&output=1", speak))
    assert seen == {1: b"hello there"}
    assert status["status"] == "Success"


def test_exec_on_a_terminal_of_the_right_size(node: Node, endpoint: Endpoint) -> None:
    node.wait_phase(node.run({"containers": [shell("sleep 100")]}, name="p"), "Running")

    async def speak(ws: aiohttp.ClientWebSocketResponse) -> None:
        await ws.send_bytes(b'\4{"Width":97,"Height":31}')
        await asyncio.sleep(0.5)
        await ws.send_bytes(b"\0tty; busybox stty size; exit 4\n")

    path = "/exec/default/p/c?command=sh&input=1&output=1&tty=1"
    seen, status = asyncio.run(talk(endpoint, path, speak))
    assert b"31 97" in seen[1]
    assert status["details"]["causes"][0]["message"] == "4"


def test_attach_to_the_main_process(node: Node, endpoint: Endpoint) -> None:
    script = "while read line; do echo got $line; done; echo end"
    node.wait_phase(node.run({"containers": [shell(script, stdin=True, stdinOnce=True)]}, name="p"), "Running")

    async def speak(ws: aiohttp.ClientWebSocketResponse) -> None:
        await ws.send_bytes(b"\0ping\n")
        await asyncio.sleep(0.3)
        await ws.send_bytes(b"\xff\0")

    seen, _ = asyncio.run(talk(endpoint, "/attach/default/p/c?input=1&output=1", speak))
    assert seen[1] == b"got ping\nend\n"


def test_port_forward_reaches_the_pods_loopback(node: Node, endpoint: Endpoint) -> None:
    uid = node.run({"containers": [shell("echo hi > /www/x; httpd -f -p 127.0.0.1:8080 -h /www")]}, name="p")
    node.wait_phase(uid, "Running")

    async def ask() -> bytes:
        protocols = ["v4.channel.k8s.io"]
        async with (
            endpoint.session() as session,
            session.ws_connect("/portForward/default/p?port=8080", protocols=protocols) as ws,
        ):
            for _ in range(2):
                message = await ws.receive_bytes(timeout=5)
                assert struct.unpack("<H", message[1:]) == (8080,)
            await ws.send_bytes(b"\0GET /x HTTP/1.0\r\n\r\n")
            data = b""
            while b"hi\n" not in data:
                data += (await ws.receive_bytes(timeout=5))[1:]
            # The server in the Pod has ended the connection, and who only listens hears of it.
            ended = (await ws.receive(timeout=5)).type
            assert ended in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)
            return data

    assert b"200 OK" in asyncio.run(ask())


def test_a_plain_request_for_exec_is_told_what_to_speak(node: Node, endpoint: Endpoint) -> None:
    node.wait_phase(node.run({"containers": [shell("sleep 100")]}, name="p"), "Running")
    code, body = asyncio.run(get(endpoint, "/exec/default/p/c?command=id"))
    assert code == 400
    assert "websocket" in json.loads(body)["message"]
