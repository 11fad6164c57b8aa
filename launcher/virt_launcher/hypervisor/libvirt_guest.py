"""The part of the door to libvirt that speaks to the guest rather than about it: agent, screen, reboot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import libvirt

from virt_launcher.hypervisor.agent import (
    commands_from_answer,
    filesystems_from_answer,
    report_from_params,
    users_from_answer,
    version_from_answer,
)
from virt_launcher.hypervisor.ports import AgentFilesystem, AgentInfo, AgentReport, AgentUser

_AGENT_TIMEOUT_S = 5
#: The guest writes out all its caches first.
_FREEZE_TIMEOUT_S = 15
_PIECE = 256 << 10
#: What virDomainFSInfo and friends are not asked for: only what the VMI's status shows.
_AGENT_TYPES = (
    libvirt.VIR_DOMAIN_GUEST_INFO_OS
    | libvirt.VIR_DOMAIN_GUEST_INFO_HOSTNAME
    | libvirt.VIR_DOMAIN_GUEST_INFO_TIMEZONE
    | libvirt.VIR_DOMAIN_GUEST_INFO_INTERFACES
)
#: libvirt tries them in this order.
_REBOOT = libvirt.VIR_DOMAIN_REBOOT_GUEST_AGENT | libvirt.VIR_DOMAIN_REBOOT_ACPI_POWER_BTN


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
            return report_from_params(domain.guestInfo(_AGENT_TYPES, 0))

    def agent_info(self) -> AgentInfo:
        answer = self._agent("guest-info")
        return AgentInfo(version_from_answer(answer), commands_from_answer(answer))

    def agent_users(self) -> tuple[AgentUser, ...]:
        return users_from_answer(self._agent("guest-get-users"))

    def agent_filesystems(self) -> tuple[AgentFilesystem, ...]:
        return filesystems_from_answer(self._agent("guest-get-fsinfo"))

    def reboot(self) -> None:
        with self._machine() as domain:
            domain.reboot(_REBOOT)

    def reset(self) -> None:
        with self._machine() as domain:
            domain.reset(0)

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

    def _agent(self, command: str) -> str:
        import libvirt_qemu

        with self._machine() as domain:
            answer = libvirt_qemu.qemuAgentCommand(domain, f'{{"execute":"{command}"}}', _AGENT_TIMEOUT_S, 0)
        return str(answer)
