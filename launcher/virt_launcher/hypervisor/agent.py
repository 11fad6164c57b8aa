"""Reads libvirt's flat guest-info parameters (`if.0.addr.1.addr`) into a report.

The guest wrote them: nothing is trusted.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.ports import AgentFilesystem, AgentInterface, AgentReport, AgentUser, GuestExit

_OS_KEYS = ("id", "name", "pretty-name", "version", "version-id", "machine", "kernel-release", "kernel-version")
#: What is read at most, whatever the guest claims to have.
MAX_INTERFACES = 64
MAX_ADDRESSES = 16
MAX_TEXT = 256
MAX_VERSION = 64
MAX_USERS = 256
MAX_FILESYSTEMS = 256
MAX_DISKS = 16
MAX_ANSWER = 1 << 20
MAX_COMMANDS = 128
#: Of each of a command's two outputs.
MAX_OUTPUT = 32 << 10
_SIGNAL_BASE = 128
_MAX_CODE = 255
_MAX_NUMBER = 1 << 31
_MAX_BYTES = 1 << 63
_COMMAND = re.compile(r"guest-[a-z0-9-]{1,58}")


def report_from_params(params: dict[str, Any]) -> AgentReport:
    return AgentReport(
        os={key: text for key in _OS_KEYS if (text := _text(params.get(f"os.{key}")))},
        hostname=_text(params.get("hostname")),
        timezone=_text(params.get("timezone.name")),
        interfaces=tuple(_interface(params, number) for number in range(_count(params, "if.count", MAX_INTERFACES))),
    )


def version_from_answer(answer: str) -> str:
    """The version out of the answer to guest-info; empty when the guest answers something else."""
    found = _returned(answer)
    return _text(found.get("version"))[:MAX_VERSION] if isinstance(found, dict) else ""


def commands_from_answer(answer: str) -> tuple[str, ...]:
    """What the agent can do, out of the same answer."""
    found = _returned(answer)
    rows = _objects(found.get("supported_commands") if isinstance(found, dict) else None, MAX_COMMANDS)
    names = (_text(row.get("name")) for row in rows if row.get("enabled") is True)
    return tuple(sorted(name for name in names if _COMMAND.fullmatch(name)))


def users_from_answer(answer: str) -> tuple[AgentUser, ...]:
    """The answer to guest-get-users."""
    return tuple(
        AgentUser(_text(row.get("user")), _text(row.get("domain")), _seconds(row.get("login-time")))
        for row in _objects(_returned(answer), MAX_USERS)
    )


def filesystems_from_answer(answer: str) -> tuple[AgentFilesystem, ...]:
    """The answer to guest-get-fsinfo."""
    return tuple(
        AgentFilesystem(
            disk_name=_text(row.get("name")),
            mount_point=_text(row.get("mountpoint")),
            type=_text(row.get("type")),
            used_bytes=_bytes(row.get("used-bytes")),
            total_bytes=_bytes(row.get("total-bytes")),
            disks=_disks(row.get("disk")),
        )
        for row in _objects(_returned(answer), MAX_FILESYSTEMS)
    )


def frozen_from_answer(answer: str) -> bool:
    """The answer to guest-fsfreeze-status."""
    return bool(_returned(answer) == "frozen")


def number_from_answer(answer: str) -> int:
    """The answer to guest-exec."""
    number = _record(answer).get("pid")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _MAX_NUMBER:
        raise LauncherError("the guest agent did not say which command it started")
    return number


def exit_from_answer(answer: str) -> GuestExit | None:
    """The answer to guest-exec-status; None while the command runs."""
    record = _record(answer)
    if record.get("exited") is not True:
        return None
    code, signal = record.get("exitcode"), record.get("signal")
    if not isinstance(code, int):
        code = _SIGNAL_BASE + signal if isinstance(signal, int) else 1
    texts = (_output(record.get(key)) for key in ("out-data", "err-data"))
    return GuestExit(code if 0 <= code <= _MAX_CODE else _MAX_CODE, "".join(texts))


def _record(answer: str) -> dict[str, Any]:
    if len(answer) > MAX_ANSWER:
        raise LauncherError(f"the guest agent answered more than {MAX_ANSWER} bytes")
    found = _returned(answer)
    if not isinstance(found, dict):
        raise LauncherError("the guest agent answered something that is not understood")
    return found


def _output(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    try:
        data = base64.b64decode(value[: MAX_OUTPUT // 3 * 4], validate=True)
    except (binascii.Error, ValueError):
        return ""
    text = data.decode(errors="replace")
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def _returned(answer: str) -> Any:
    """What the agent gave back; None when it says something else, too much, or nests it too deep."""
    if len(answer) > MAX_ANSWER:
        return None
    try:
        return json.loads(answer)["return"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _objects(value: Any, limit: int) -> list[dict[str, Any]]:
    """The rows of a list, as far as they are rows."""
    return [row for row in value if isinstance(row, dict)][:limit] if isinstance(value, list) else []


def _disks(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(row.get("serial")), _text(row.get("bus-type"))) for row in _objects(value, MAX_DISKS))


def _bytes(value: Any) -> int:
    return value if type(value) is int and 0 <= value < _MAX_BYTES else 0


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and 0 <= value < _MAX_BYTES else 0.0


def _interface(params: dict[str, Any], number: int) -> AgentInterface:
    prefix = f"if.{number}"
    count = _count(params, f"{prefix}.addr.count", MAX_ADDRESSES)
    addresses = (_text(params.get(f"{prefix}.addr.{index}.addr")) for index in range(count))
    return AgentInterface(
        name=_text(params.get(f"{prefix}.name")),
        mac=_text(params.get(f"{prefix}.hwaddr")),
        addresses=tuple(address for address in addresses if address),
    )


def _count(params: dict[str, Any], key: str, limit: int) -> int:
    value = params.get(key, 0)
    return min(value, limit) if isinstance(value, int) and value > 0 else 0


def _text(value: Any) -> str:
    """Printable and short."""
    if not isinstance(value, str):
        return ""
    return "".join(c for c in value[:MAX_TEXT] if c.isprintable())
