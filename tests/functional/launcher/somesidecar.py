"""A hook sidecar of the worse kind, as a program: somesidecar.py BEHAVIOUR SOCKET."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from virt_protos.hooks.v1 import info_pb2
from virt_protos.hooks.v1alpha3 import callbacks_pb2 as pb

#: More than a launcher may ever be told.
HUGE = 64 << 20


def answer(behaviour: str, xml: bytes) -> bytes:
    """What it says to OnDefineDomain; `add:X` puts X into the machine's title, so that the order shows."""
    kind, _, what = behaviour.partition(":")
    if kind == "add":
        text = xml.decode()
        if "<title>" in text:
            return text.replace("</title>", f"{what}</title>").encode()
        return text.replace("<memory ", f"<title>{what}</title><memory ", 1).encode()
    return {
        "binary": b"\xff\xfe\0",
        "text": b"I would rather not",
        "huge": b"x" * HUGE,
        "fat": b"<domain>" + b" " * (2 << 20) + b"</domain>",
        "other": xml.replace(b"<name>ns_vm1</name>", b"<name>ns_vm2</name>"),
        "entities": b'<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><domain><name>&b;</name></domain>',
        "broken": xml.replace(b"<devices>", b"<devices><disk type='file'><target dev='nonsense'/></disk>"),
        "bare": b"<domain type='qemu'><memory unit='KiB'>65536</memory><os><type>hvm</type></os></domain>",
    }[kind]


def serve(behaviour: str, path: str, priority: int) -> None:
    ended = threading.Event()

    def info(_request: Any, _context: Any) -> info_pb2.InfoResult:
        versions = ["v9"] if behaviour == "stranger" else ["v1alpha2", "v1alpha1"]
        points = [info_pb2.HookPoint(name="OnDefineDomain", priority=priority)]
        return info_pb2.InfoResult(name=behaviour, versions=versions, hookPoints=points)

    def define(request: pb.OnDefineDomainParams, context: Any) -> pb.OnDefineDomainResult:
        if behaviour == "never":
            ended.wait()
        if behaviour == "sulky":
            context.abort(grpc.StatusCode.INTERNAL, "I will not")
        return pb.OnDefineDomainResult(domainXML=answer(behaviour, request.domainXML))

    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_send_message_length", -1)])
    for name, method, ask, cls in (
        ("kubevirt.hooks.info.Info", "Info", info, info_pb2.InfoParams),
        ("kubevirt.hooks.v1alpha2.Callbacks", "OnDefineDomain", define, pb.OnDefineDomainParams),
    ):
        handler = grpc.unary_unary_rpc_method_handler(
            ask, request_deserializer=cls.FromString, response_serializer=lambda message: message.SerializeToString()
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {method: handler}),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()


def babble(path: str, words: bytes) -> None:
    """Takes every connection, says something or nothing, and keeps it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        kept = []
        while True:
            connection, _ = listener.accept()
            kept.append(connection)
            if words:
                with contextlib.suppress(OSError):
                    connection.sendall(words)


if __name__ == "__main__":
    if sys.argv[1] in ("silent", "garbage"):
        babble(sys.argv[2], b"HTTP/1.0 200 OK\r\n\r\n" * 1000 if sys.argv[1] == "garbage" else b"")
    else:
        serve(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
