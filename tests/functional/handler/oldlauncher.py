"""A launcher of the last release: it knows nothing but the contract that was frozen then.

Its messages are made from the frozen descriptors in a pool of their own, so no field, enum value or RPC that came later
exists for it. What it does with its machine is what the fake launcher of today does, as far as it can say so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from framework.protocompat import read_frozen
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from virt_core.rpc.channel import unix_channel
from virt_core.rpc.handshake import negotiate
from virt_core.rpc.server import RpcServer, serve_unix

FROZEN = Path(__file__).resolve().parents[2] / "golden" / "contracts"
LAUNCHER, NOTIFY = "virtpod.launcher.v1", "virtpod.notify.v1"
#: What launchers of that release speak.
VERSIONS = (1,)


class Contract:
    """The messages and RPCs of one moment in the past."""

    def __init__(self) -> None:
        self._pool = DescriptorPool()
        frozen = read_frozen(FROZEN)
        for name in ("virt_protos/launcher/v1/launcher.proto", "virt_protos/notify/v1/notify.proto"):
            self._pool.Add(frozen[name])

    def message(self, name: str) -> Any:
        return GetMessageClass(self._pool.FindMessageTypeByName(name))

    def enum(self, name: str) -> int:
        values = self._pool.FindEnumTypeByName(f"{LAUNCHER}.DomainState").values_by_name
        return int(values[name].number)

    def methods(self, service: str) -> dict[str, tuple[Any, Any]]:
        found = self._pool.FindServiceByName(service).methods
        return {each.name: (GetMessageClass(each.input_type), GetMessageClass(each.output_type)) for each in found}


class OldLauncher:
    def __init__(self, sockets: Path, vmi_uid: str, versions: tuple[int, ...] = VERSIONS) -> None:
        self.sockets, self.vmi_uid, self.versions = sockets, vmi_uid, versions
        self.contract = Contract()
        self.calls: list[str] = []
        self.vmi_json = b""
        self._domain = self.contract.message(f"{LAUNCHER}.Domain")
        self.domain = self._domain(state=self.contract.enum("DOMAIN_STATE_ABSENT"))
        self._sequence = 0
        self._server: RpcServer | None = None
        self._channel: grpc.Channel | None = None

    def open(self) -> None:
        methods = self.contract.methods(f"{LAUNCHER}.Launcher")
        handlers = {name: self._handler(name, *types) for name, types in methods.items()}
        generic = grpc.method_handlers_generic_handler(f"{LAUNCHER}.Launcher", handlers)
        directory = os.open(self.sockets, os.O_RDONLY | os.O_DIRECTORY)
        self._server = serve_unix(
            "launcher-init-sock", [lambda server: server.add_generic_rpc_handlers((generic,))], dir_fd=directory
        )
        (self.sockets / "launcher-init-sock").rename(self.sockets / "launcher-sock")
        os.close(directory)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._server is not None:
            self._server.stop(0)

    def _handler(self, name: str, request: Any, response: Any) -> Any:
        action: Callable[[Any, Any], Any] = getattr(self, f"_{name}", lambda _request, answer: answer())

        def call(given: Any, _context: Any) -> Any:
            self.calls.append(name)
            return action(given, response)

        return grpc.unary_unary_rpc_method_handler(call, request.FromString, response.SerializeToString)

    def _Hello(self, request: Any, answer: Any) -> Any:
        version = negotiate(request.versions, self.versions, peer="virt-handler")
        return answer(version=version, program_version="0.0.9", vmi_uid=self.vmi_uid)

    def _GetDomain(self, _request: Any, answer: Any) -> Any:
        absent = self.domain.state == self.contract.enum("DOMAIN_STATE_ABSENT")
        return answer() if absent else answer(domain=self.domain)

    def _SyncVMI(self, request: Any, answer: Any) -> Any:
        self.vmi_json = request.vmi_json
        self.tell("DOMAIN_STATE_RUNNING")
        return answer(domain=self.domain)

    def _Pause(self, _request: Any, answer: Any) -> Any:
        self.tell("DOMAIN_STATE_PAUSED", "User")
        return answer()

    def _Shutdown(self, _request: Any, answer: Any) -> Any:
        self.tell("DOMAIN_STATE_SHUTOFF", "Shutdown")
        return answer()

    def tell(self, state: str, reason: str = "") -> None:
        self.domain = self._domain(state=self.contract.enum(state), reason=reason)
        self._sequence += 1
        self._notify("DomainChanged", domain=self.domain, sequence=self._sequence)

    def _notify(self, method: str, **fields: Any) -> Any:
        if self._channel is None:
            self._fd = os.open(self.sockets / "notify-sock", os.O_PATH)
            self._channel = unix_channel(self._fd)
            # As every launcher does: the first call settles the version.
            assert self._notify("Hello", versions=self.versions).version in self.versions
        request, answer = self.contract.methods(f"{NOTIFY}.Notify")[method]
        call = self._channel.unary_unary(f"/{NOTIFY}.Notify/{method}", request.SerializeToString, answer.FromString)
        return call(request(**fields), wait_for_ready=True, timeout=10)
