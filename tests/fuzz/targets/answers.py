"""What a launcher answers virt-handler: a launcher that its guest has taken over says what it likes.

An input is the name of a call in the first line and the message that a real server on a real socket answers it with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from framework.vmis import UID
from fuzz.mutate import maybe_noisy, messages
from fuzz.target import Run, Target
from fuzz.targets.notify import session, status_bounded
from google.protobuf.message import Message
from hypothesis import strategies as st

from virt_core.rpc.status import RpcFailure
from virt_handler.decisions.domains import bounded_info
from virt_handler.loop.sessions import Session
from virt_handler.pods.launchers import CALL_TIMEOUT_S, Launcher, WrongLauncherError
from virt_handler.service import answers
from virt_protos.launcher.v1 import launcher_pb2 as pb

Act = Callable[[Launcher, Session], list[Message] | None]
#: What virt-handler passes on to virt-api fits a message, and each text in it is one that people can read.
ANSWER_BYTES = 4 << 20
TEXT_LETTERS = 64 << 10


def _meet(launcher: Launcher, known: Session) -> None:
    domain, synced = launcher.get_machine()
    known.domain_read(domain, known.version())
    if synced is not None:
        known.synced_read(synced)


def _sync(launcher: Launcher, known: Session) -> None:
    known.sync_started("digest")
    version = known.version()
    try:
        known.sync_done(launcher.sync(pb.SyncVMIRequest(), CALL_TIMEOUT_S).result(), version)
    except grpc.RpcError:
        known.sync_failed("no", fatal=False)


ACTS: dict[str, tuple[Any, Act]] = {
    "Hello": (pb.HelloResponse, lambda launcher, _: launcher.hello(UID)),
    "GetDomain": (pb.GetDomainResponse, _meet),
    "SyncVMI": (pb.SyncVMIResponse, _sync),
    "GetUsers": (pb.GetUsersResponse, lambda launcher, _: answers.users(launcher.get_users())),
    "GetFilesystems": (pb.GetFilesystemsResponse, lambda launcher, _: answers.filesystems(launcher.get_filesystems())),
    "GetSevInfo": (pb.GetSevInfoResponse, lambda launcher, _: [answers.sev_info(launcher.get_sev_info())]),
    "GetLaunchMeasurement": (
        pb.GetLaunchMeasurementResponse,
        lambda launcher, _: [answers.measurement(launcher.get_launch_measurement())],
    ),
    "GetGuestInfo": (pb.GetGuestInfoResponse, lambda launcher, _: [bounded_info(launcher.get_guest_info())]),
    "Pause": (pb.PauseResponse, lambda launcher, _: launcher.pause()),
}


@st.composite
def replies(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from(sorted(ACTS)))
    message = draw(messages(ACTS[name][0]))
    if name in ("GetDomain", "SyncVMI") and draw(st.booleans()):
        message.domain.state = pb.DOMAIN_STATE_RUNNING
    return name.encode() + b"\n" + message.SerializeToString()


class Liar(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every call with the same bytes."""

    def __init__(self) -> None:
        self.words = b""

    def service(self, _details: object) -> object:
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: self.words)


@contextmanager
def door(directory: Path) -> Iterator[Run]:
    liar, path = Liar(), directory / "launcher-sock"
    server = grpc.server(ThreadPoolExecutor(2), handlers=[liar])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    launcher = Launcher(os.getpid(), os.pidfd_open(os.getpid()), os.open(path, os.O_PATH))
    try:
        yield lambda data: judge(launcher, liar, data)
    finally:
        launcher.close()
        server.stop(0).wait()


def judge(launcher: Launcher, liar: Liar, data: bytes) -> None:
    name, _, liar.words = data.partition(b"\n")
    if name.decode(errors="replace") not in ACTS:
        return
    known = session()
    try:
        said = ACTS[name.decode()][1](launcher, known) or []
    except (RpcFailure, WrongLauncherError):
        said = []
    size = sum(len(message.SerializeToString()) for message in said)
    assert size <= ANSWER_BYTES, f"virt-handler passes {size} bytes on"
    texts = [value for message in said for _, value in message.ListFields() if isinstance(value, str)]
    assert all(len(text) <= TEXT_LETTERS for text in texts)
    status_bounded(known)


def _answer(name: str, message: Message) -> bytes:
    return name.encode() + b"\n" + message.SerializeToString()


FAMILIES = {
    "users": lambda n: _answer("GetUsers", pb.GetUsersResponse(users=[pb.GuestUser(name="root")] * n)),
    "filesystems": lambda n: _answer(
        "GetFilesystems", pb.GetFilesystemsResponse(filesystems=[pb.GuestFilesystem(disk_name="vda")] * n)
    ),
    "handoffs": lambda n: _answer(
        "SyncVMI", pb.SyncVMIResponse(handoffs=[pb.Handoff(name=f"h{i}", time_us=i) for i in range(n)])
    ),
}

TARGET = Target("answers", maybe_noisy(replies()), door, 300, FAMILIES)
