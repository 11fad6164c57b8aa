"""The file on its way: one POST to the importer that waits for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from virt_core.apis import importplan
from virt_core.kube.connect import Connection
from virtctl.imageupload.bar import Bar
from virtctl.imageupload.tunnel import CHUNK, Tunnel, TunnelError

#: The importer makes safe what it has before it answers.
_ANSWER_S = 600.0
_QCOW2_MAGIC, _QCOW2_SIZE = b"QFI\xfb", slice(24, 32)
#: What else has a size of its own inside; the user says it.
_OTHERS = (b"KDMV", b"vhdxfile", b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"conectix")
_VDI_MAGIC, _VDI_AT = b"\x7f\x10\xda\xbe", 64


class SendError(Exception):
    """The importer did not take it. `final`: it would not the next time either."""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


def disk_size(path: Path) -> int:
    """How large the disk in the file is, if that is easily said; else 0."""
    with path.open("rb") as file:
        head = file.read(512)
    if head.startswith(_QCOW2_MAGIC):
        return int.from_bytes(head[_QCOW2_SIZE], "big")
    if head.startswith(_OTHERS) or head[_VDI_AT : _VDI_AT + 4] == _VDI_MAGIC:
        return 0
    return path.stat().st_size


def send(connection: Connection, namespace: str, pod: str, path: Path) -> str:
    """What the importer says of it. Raises SendError, HandshakeRefused, ApiError, OSError."""
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        tunnel = Tunnel(connection, namespace, pod, importplan.UPLOAD_PORT)
        try:
            _pour(tunnel, file, length)
            return _judge(tunnel.answer(_ANSWER_S))
        except TunnelError as error:
            raise SendError(str(error), final=False) from error
        finally:
            tunnel.close()


def _pour(tunnel: Tunnel, file: BinaryIO, length: int) -> None:
    head = f"POST {importplan.PATH_UPLOAD} HTTP/1.1\r\nHost: importer\r\nContent-Length: {length}\r\n"
    tunnel.send(f"{head}Content-Type: application/octet-stream\r\n\r\n".encode())
    bar, sent = Bar(length), 0
    while not tunnel.answered() and (data := file.read(CHUNK)):
        tunnel.send(data)
        sent += len(data)
        bar.show(sent)
    bar.end()


def _judge(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    code = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    text = body.decode(errors="replace").strip()
    if code == 200:
        return text
    raise SendError(text or "the importer ended the connection", final=code in (400, 404, 411))
