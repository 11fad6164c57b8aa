"""The part of the door to libvirt that speaks to the guest rather than about it: agent, screen, reboot."""

from __future__ import annotations

import functools
import json
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import libvirt

from virt_launcher.hypervisor.agent import (
    commands_from_answer,
    exit_from_answer,
    filesystems_from_answer,
    frozen_from_answer,
    number_from_answer,
    report_from_params,
    users_from_answer,
    version_from_answer,
)
from virt_launcher.hypervisor.libvirt_errors import UNREADABLE
from virt_launcher.hypervisor.ports import AgentFilesystem, AgentInfo, AgentReport, AgentUser, GuestExit

_AGENT_TIMEOUT_S = 5
#: The guest writes out all its caches first.
_FREEZE_TIMEOUT_S = 15
_PIECE = 256 << 10
#: What virDomainFSInfo and friends are not asked for: only what the VMI's status shows.
_AGENT_PARTS = (
    libvirt.VIR_DOMAIN_GUEST_INFO_OS,
    libvirt.VIR_DOMAIN_GUEST_INFO_HOSTNAME,
    libvirt.VIR_DOMAIN_GUEST_INFO_TIMEZONE,
    libvirt.VIR_DOMAIN_GUEST_INFO_INTERFACES,
)
_AGENT_TYPES = functools.reduce(operator.or_, _AGENT_PARTS)
#: libvirt tries them in this order.
_REBOOT = libvirt.VIR_DOMAIN_REBOOT_GUEST_AGENT | libvirt.VIR_DOMAIN_REBOOT_ACPI_POWER_BTN

#: Asking again would take as long again, and tell as little.
_AGENT_GONE = frozenset({libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_OPERATION_INVALID})


def _by_parts(domain: Any) -> dict[str, Any]:
    """An agent that does not know one of the commands, or answers it with nonsense, may know the others."""
    found: dict[str, Any] = {}
    for number, part in enumerate(_AGENT_PARTS, 1):
        try:
            found |= domain.guestInfo(part, 0)
        except libvirt.libvirtError as error:
            if error.get_error_code() in _AGENT_GONE or (number == len(_AGENT_PARTS) and not found):
                raise
        except UNREADABLE:
            if number == len(_AGENT_PARTS) and not found:
                raise
    return found


class GuestDoor(ABC):
    """Whoever extends it has the connection."""

    @abstractmethod
    def _asking(self) -> AbstractContextManager[Any]:
        """The connection; errors are translated."""

    @abstractmethod
    def _machine(self) -> AbstractContextManager[Any]:
        """The domain, likewise."""

    def agent_report(self) -> AgentReport:
        with self._machine() as domain:
            domain.agentSetResponseTimeout(_AGENT_TIMEOUT_S, 0)
            try:
                return report_from_params(domain.guestInfo(_AGENT_TYPES, 0))
            except libvirt.libvirtError as error:
                if error.get_error_code() in _AGENT_GONE:
                    raise
            except UNREADABLE:
                pass  # One of its words; the others may be well.
            return report_from_params(_by_parts(domain))

    def agent_info(self) -> AgentInfo:
        answer = self._agent("guest-info")
        return AgentInfo(version_from_answer(answer), commands_from_answer(answer))

    def agent_users(self) -> tuple[AgentUser, ...]:
        return users_from_answer(self._agent("guest-get-users"))

    def agent_filesystems(self) -> tuple[AgentFilesystem, ...]:
        return filesystems_from_answer(self._agent("guest-get-fsinfo"))

    def ping_agent(self, timeout_s: float) -> None:
        self._agent("guest-ping", timeout_s=max(math.ceil(timeout_s), 1))

    def start_in_guest(self, path: str, arguments: Sequence[str]) -> int:
        wanted = {"path": path, "arg": list(arguments), "capture-output": True}
        return number_from_answer(self._agent("guest-exec", wanted))

    def exit_in_guest(self, number: int) -> GuestExit | None:
        return exit_from_answer(self._agent("guest-exec-status", {"pid": number}))

    def set_guest_time(self, nanoseconds: int) -> None:
        seconds, rest = divmod(nanoseconds, 1_000_000_000)
        with self._machine() as domain:
            domain.agentSetResponseTimeout(_AGENT_TIMEOUT_S, 0)
            domain.setTime({"seconds": seconds, "nseconds": rest}, 0)

    def set_ssh_keys(self, user: str, keys: Sequence[str]) -> None:
        with self._machine() as domain:
            domain.agentSetResponseTimeout(_AGENT_TIMEOUT_S, 0)
            domain.authorizedSSHKeysSet(user, list(keys), 0)

    def set_password(self, user: str, password: str) -> None:
        with self._machine() as domain:
            domain.agentSetResponseTimeout(_AGENT_TIMEOUT_S, 0)
            domain.setUserPassword(user, password, 0)

    def reboot(self) -> None:
        with self._machine() as domain:
            domain.reboot(_REBOOT)

    def reset(self) -> None:
        with self._machine() as domain:
            domain.reset(0)

    def is_frozen(self) -> bool:
        return frozen_from_answer(self._agent("guest-fsfreeze-status"))

    def freeze(self) -> None:
        with self._machine() as domain:
            domain.agentSetResponseTimeout(_FREEZE_TIMEOUT_S, 0)
            domain.fsFreeze(None, 0)

    def thaw(self) -> None:
        with self._machine() as domain:
            domain.agentSetResponseTimeout(_FREEZE_TIMEOUT_S, 0)
            domain.fsThaw(None, 0)

    def screenshot(self, receive: Callable[[bytes], None]) -> None:
        with self._asking() as connection, self._machine() as domain:
            stream = connection.newStream(0)
            domain.screenshot(stream, 0, 0)
            try:
                while piece := stream.recv(_PIECE):
                    receive(piece)
            except BaseException:
                stream.abort()
                raise
            stream.finish()

    def _agent(self, command: str, arguments: dict[str, Any] | None = None, timeout_s: int = _AGENT_TIMEOUT_S) -> str:
        import libvirt_qemu

        request = {"execute": command} | ({"arguments": arguments} if arguments else {})
        with self._machine() as domain:
            answer = libvirt_qemu.qemuAgentCommand(domain, json.dumps(request), timeout_s, 0)
        return str(answer)
