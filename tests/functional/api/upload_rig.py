"""An API server that forwards ports of Pods to an importer that really listens, and a client like Go's."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web
from framework.waiting import eventually
from framework.wsserver import EchoServer, serving
from functional.api.rig import TOKEN, Rig, running

from virt_core.apis import importplan, names
from virt_core.apis.datavolume import KEY_POD_READY, KEY_UPLOAD_TARGET
from virt_core.apis.importplan import ImportPlan, ImportReport
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.pods import Pod, PodStatus
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.runtime.files import SafeDir
from virt_launcher.importer.fill import Filler
from virt_launcher.importer.journal import Journal
from virt_launcher.importer.progress import Meter
from virt_launcher.importer.target import FileTarget
from virt_launcher.importer.upload import receive

OWNER = OwnerReference("cdi.kubevirt.io/v1beta1", "DataVolume", "disk", "volume-uid")


class PortForward(EchoServer):
    """The way that the API server and a kubelet make together; `to` is where it ends."""

    to = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.paths.append(request.path_qs)
        if self.answers:
            return self.answers.pop(0)
        ws = web.WebSocketResponse(protocols=("v4.channel.k8s.io",), max_msg_size=0)
        await ws.prepare(request)
        port = importplan.UPLOAD_PORT.to_bytes(2, "little")
        await ws.send_bytes(b"\0" + port)
        await ws.send_bytes(b"\1" + port)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError as error:
            await ws.send_bytes(b"\1" + str(error).encode())
            return ws
        back = asyncio.create_task(self._back(reader, ws))
        async for message in ws:
            if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
                writer.write(message.data[1:])
                await writer.drain()
        writer.close()
        back.cancel()
        return ws

    async def _back(self, reader: asyncio.StreamReader, ws: web.WebSocketResponse) -> None:
        while data := await reader.read(1 << 16):
            await ws.send_bytes(b"\0" + data)
        await ws.close()


@dataclass
class Uploading:
    """virt-api, a claim `disk` and its importer."""

    rig: Rig
    forward: PortForward
    claim: Path
    reports: list[ImportReport] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        parts = urlsplit(self.rig.url)
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=30, context=self.rig.tls())
        try:
            connection.request(method, path, body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def request_token(self, claim: str = "disk", word: str = TOKEN, namespace: str = "default") -> tuple[int, Any]:
        path = f"/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/{namespace}/uploadtokenrequests"
        body = json.dumps({"metadata": {"generateName": "token-for-virtctl-"}, "spec": {"pvcName": claim}})
        code, text = self.ask("POST", path, body, Authorization=f"Bearer {word}", Content_Type="application/json")
        return code, json.loads(text)

    def token(self) -> str:
        code, answer = self.request_token()
        assert code == 201, answer
        return str(answer["status"]["token"])

    def send(self, token: str, body: Any, path: str = "/v1beta1/upload-async", method: str = "POST") -> tuple[int, str]:
        return self.ask(method, path, body, Authorization=f"Bearer {token}", Content_Type="application/octet-stream")

    def disk(self) -> bytes:
        eventually(lambda: self.reports)
        return (self.claim / names.FILE_DISK).read_bytes()

    def begin(self, token: str, length: int) -> http.client.HTTPSConnection:
        """Headers and nothing else."""
        parts = urlsplit(self.rig.url)
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=30, context=self.rig.tls())
        connection.putrequest("POST", "/v1beta1/upload")
        connection.putheader("Authorization", f"Bearer {token}")
        connection.putheader("Content-Length", str(length))
        connection.endheaders()
        return connection


def make_claim(**annotations: str) -> PersistentVolumeClaim:
    said = {KEY_UPLOAD_TARGET: "", KEY_POD_READY: "true"} | annotations
    meta = ObjectMeta(name="disk", namespace="default", uid="claim-uid", annotations=said, owner_references=[OWNER])
    return PersistentVolumeClaim(metadata=meta)


def make_pod() -> Pod:
    labels = {names.LABEL_APP: names.APP_IMPORTER}
    meta = ObjectMeta(name="importer-disk", namespace="default", labels=labels, owner_references=[OWNER])
    return Pod(metadata=meta, status=PodStatus(phase="Running"))


@contextmanager
def uploading(directory: Path, room: int) -> Iterator[Uploading]:
    claim, port = directory / "claim", _free()
    claim.mkdir()
    forward = PortForward()
    forward.to = port
    with (
        serving(forward),
        running(directory, forward.connection()) as rig,
        SafeDir.open_trusted(claim) as root,
    ):
        rig.client.claims["disk"], rig.client.pods["importer-disk"] = make_claim(), make_pod()
        target = FileTarget(root, room)
        filler = Filler(ImportPlan(source=importplan.UPLOAD, size=room), target, Journal(root), Meter())
        it = Uploading(rig, forward, claim)
        waiting = threading.Thread(target=lambda: it.reports.append(receive(filler, Meter(), port)), daemon=True)
        waiting.start()
        eventually(lambda: _listens(port))
        yield it
        target.close()


def _free() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def noise(size: int) -> bytes:
    return random.Random(3).randbytes(size)
