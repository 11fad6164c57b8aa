"""libvirt's error codes in the launcher's vocabulary."""

from __future__ import annotations

import re
from typing import Any

import libvirt

from virt_launcher.errors import (
    AgentGivenUpError,
    InvalidVMIError,
    LauncherError,
    NoMachineError,
    UnavailableError,
    WrongStateError,
)

_GONE = frozenset(
    {
        libvirt.VIR_ERR_INTERNAL_ERROR,
        libvirt.VIR_ERR_INVALID_CONN,
        libvirt.VIR_ERR_SYSTEM_ERROR,
        libvirt.VIR_ERR_RPC,
        libvirt.VIR_ERR_NO_CONNECT,
    }
)
_INVALID = frozenset(
    {
        libvirt.VIR_ERR_XML_ERROR,
        libvirt.VIR_ERR_XML_DETAIL,
        libvirt.VIR_ERR_XML_INVALID_SCHEMA,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
    }
)
_WRONG_STATE = frozenset(
    {
        libvirt.VIR_ERR_OPERATION_INVALID,
        libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
        libvirt.VIR_ERR_AGENT_UNSYNCED,
    }
)
#: Of an agent that is only slow it says something else, under the same code.
_GIVEN_UP = "not available due to an error"

#: What libvirt finds wrong only when it starts the machine, under a code that says nothing: the field that asked for
#: it, and what to do.
_FIELDS = (
    (
        re.compile(r"Unknown CPU model '?([^\s']+)"),
        "spec.domain.cpu.model",
        "QEMU on this node does not know the processor model {!r}; name another, or leave the field out",
    ),
    (
        re.compile(r"[Uu]nknown CPU feature:? '?([^\s']+)"),
        "spec.domain.cpu.features",
        "QEMU on this node does not know the processor feature {!r}; leave it out",
    ),
)

#: What libvirt's binding raises where a text, be it of its own error, is no UTF-8: a guest can bring that about.
UNREADABLE = (UnicodeError, SystemError)


def translate(error: libvirt.libvirtError, connection: Any, name: str) -> LauncherError:
    code, message = error.get_error_code(), error.get_error_message()
    if code == libvirt.VIR_ERR_NO_DOMAIN:
        return NoMachineError(f"there is no machine {name}")
    if code in _GONE and not _is_alive(connection):
        return UnavailableError(f"libvirt does not answer: {message}")
    if code == libvirt.VIR_ERR_AGENT_UNRESPONSIVE and _GIVEN_UP in message:
        return AgentGivenUpError("the guest agent sent something that libvirt does not take, and is asked no more")
    if known := _field_error(message):
        return known
    if code in _INVALID:
        return InvalidVMIError("", f"libvirt refuses this machine: {message}")
    return WrongStateError(message) if code in _WRONG_STATE else LauncherError(message)


def _field_error(message: str) -> InvalidVMIError | None:
    for pattern, field, advice in _FIELDS:
        if match := pattern.search(message):
            return InvalidVMIError(field, advice.format(match.group(1)))
    return None


def _is_alive(connection: Any) -> bool:
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False
