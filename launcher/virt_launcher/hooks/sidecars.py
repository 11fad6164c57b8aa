"""The sidecars of this Pod: met once, then asked in the order of their priorities.

A sidecar is the VMI's author's, or taken over: what it answers is bounded in bytes and time, and every failure says
whose it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from virt_core.apis import names
from virt_core.apis.hooksidecars import ON_DEFINE_DOMAIN, PRE_CLOUD_INIT_ISO, SHUTDOWN, VERSIONS
from virt_core.rpc.channel import unix_channel
from virt_core.runtime import files
from virt_core.runtime.logs import get_logger
from virt_launcher.errors import InvalidVMIError
from virt_launcher.settings import Settings
from virt_protos.hooks.v1 import info_pb2
from virt_protos.hooks.v1alpha3 import callbacks_pb2

log = get_logger(__name__)

FIELD = f"metadata.annotations[{names.ANNOTATION_HOOK_SIDECARS}]"
_PLUGINS_FIELD = "spec.domain.devices.interfaces"
#: virt-handler waits this long for a whole start, and QEMU wants its part of it.
START_S = 75.0
MEET_S = 20.0
CALL_S = 60.0
_INFO_S = 2.0
_SHUTDOWN_S = 2.0
_LOOK_EVERY_S = 0.05
_MAX_NAME = 64
#: Which version knew a point first.
_SINCE = {ON_DEFINE_DOMAIN: "v1alpha1", PRE_CLOUD_INIT_ISO: "v1alpha2", SHUTDOWN: "v1alpha3"}

Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class Sidecar:
    container: str
    name: str
    version: str
    #: By hook point.
    priorities: dict[str, int]
    channel: grpc.Channel
    #: Who asked for it.
    field: str = FIELD

    def __str__(self) -> str:
        return f"the sidecar {self.container} ({self.name!r})"

    def wants(self, point: str) -> bool:
        return point in self.priorities and self.version >= _SINCE[point]


class Sidecars:
    def __init__(self, settings: Settings, *, meet_s: float = MEET_S, call_s: float = CALL_S) -> None:
        self._directory = settings.paths.hooks
        self._count = settings.hook_sidecars
        first = settings.hook_sidecars - settings.plugin_sidecars
        self._of_plugins = {names.hook_container(index) for index in range(first, settings.hook_sidecars)}
        self._meet_s, self._call_s = meet_s, call_s
        self._met: list[Sidecar] = []
        self._ends_at = 0.0

    def begin(self) -> None:
        """Before each start: all that is asked together has so much time. Raises InvalidVMIError."""
        self._ends_at = time.monotonic() + START_S
        meet_by = time.monotonic() + self._meet_s
        for index in range(len(self._met), self._count):
            self._met.append(self._meet(names.hook_container(index), meet_by))

    def ask(self, point: str, ask_one: Callable[[Sidecar], None]) -> None:
        """Who has the higher priority is first, then goes the name; so does what one changed to the next."""
        wanted = [sidecar for sidecar in self._met if sidecar.wants(point)]
        for sidecar in sorted(wanted, key=lambda each: (-each.priorities[point], each.name, each.container)):
            ask_one(sidecar)

    def call(self, sidecar: Sidecar, point: str, request: Message, answer: type[Answer]) -> Answer:
        """Raises InvalidVMIError."""
        try:
            left_s = max(self._ends_at - time.monotonic(), 0.1)
            return self._call(sidecar, point, request, answer, min(self._call_s, left_s))
        except grpc.RpcError as error:
            raise refuse(sidecar, point, _words(error)) from error

    def dismiss(self) -> None:
        """The machine has ended. Who does not hear it is ended with its Pod."""

        def tell(sidecar: Sidecar) -> None:
            try:
                request = callbacks_pb2.ShutdownParams()
                self._call(sidecar, SHUTDOWN, request, callbacks_pb2.ShutdownResult, _SHUTDOWN_S)
            except grpc.RpcError as error:
                log.warning("a sidecar did not take its leave", container=sidecar.container, error=_words(error))

        self.ask(SHUTDOWN, tell)
        for sidecar in self._met:
            sidecar.channel.close()

    def _call(self, sidecar: Sidecar, point: str, request: Message, answer: type[Answer], timeout_s: float) -> Answer:
        method: Any = sidecar.channel.unary_unary(
            f"/kubevirt.hooks.{sidecar.version}.Callbacks/{point}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        result: Answer = method(request, timeout=timeout_s)
        return result

    # -- meeting them ----------------------------------------------------------------------------------------------

    def _meet(self, container: str, meet_by: float) -> Sidecar:
        """A socket may be there before anybody listens, so it is asked until somebody answers."""
        trouble = "has no socket"
        while True:
            for name in self._sockets(container):
                outcome = self._introduce(container, name)
                if isinstance(outcome, Sidecar):
                    return outcome
                trouble = outcome
            if time.monotonic() > meet_by:
                words = f"the sidecar {container} {trouble} after {self._meet_s:.0f} s"
                raise InvalidVMIError(self._field(container), words)
            time.sleep(_LOOK_EVERY_S)

    def _field(self, container: str) -> str:
        return _PLUGINS_FIELD if container in self._of_plugins else FIELD

    def _sockets(self, container: str) -> list[str]:
        try:
            return sorted(os.listdir(self._directory / container))
        except OSError:
            return []

    def _introduce(self, container: str, name: str) -> Sidecar | str:
        try:
            # A link in there could lead to any socket of ours.
            fd = files.connectable_socket(self._directory / container, name)
        except OSError:
            return "has no socket"
        channel = unix_channel(fd, timeout_s=CALL_S)
        try:
            ask: Any = channel.unary_unary(
                "/kubevirt.hooks.info.Info/Info",
                request_serializer=info_pb2.InfoParams.SerializeToString,
                response_deserializer=info_pb2.InfoResult.FromString,
            )
            told: info_pb2.InfoResult = ask(info_pb2.InfoParams(), timeout=_INFO_S)
        except grpc.RpcError as error:
            channel.close()
            os.close(fd)
            return f"does not say what it is ({_words(error)})"
        return _sidecar(container, told, channel, self._field(container))


def refuse(sidecar: Sidecar, point: str, why: str) -> InvalidVMIError:
    return InvalidVMIError(sidecar.field, f"{sidecar}, asked at {point}, {why}")


def _sidecar(container: str, told: info_pb2.InfoResult, channel: grpc.Channel, field: str) -> Sidecar:
    version = next((known for known in VERSIONS if known in told.versions), "")
    if not version:
        offered = ", ".join(repr(each[:_MAX_NAME]) for each in told.versions[:8]) or "none"
        raise InvalidVMIError(
            field, f"the sidecar {container} speaks {offered} of the hook protocol; {', '.join(VERSIONS)} are known"
        )
    points = {point.name: point.priority for point in told.hookPoints if point.name in _SINCE}
    return Sidecar(container, told.name[:_MAX_NAME], version, points, channel, field)


def _words(error: Any) -> str:
    """Of an RpcError, which is a Call as well, though its class does not say so."""
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "did not answer in time"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return "answered more than may be"
    return f"failed: {(error.details() or '')[:500]!r}"
