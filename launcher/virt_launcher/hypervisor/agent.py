"""Reads libvirt's flat guest-info parameters (`if.0.addr.1.addr`) into a report.

The guest wrote them: nothing is trusted.
"""

from __future__ import annotations

import json
from typing import Any

from virt_launcher.hypervisor.ports import AgentInterface, AgentReport

_OS_KEYS = ("id", "name", "pretty-name", "version", "version-id", "machine", "kernel-release", "kernel-version")
#: What is read at most, whatever the guest claims to have.
MAX_INTERFACES = 64
MAX_ADDRESSES = 16
MAX_TEXT = 256
MAX_VERSION = 64


def report_from_params(params: dict[str, Any]) -> AgentReport:
    return AgentReport(
        os={key: text for key in _OS_KEYS if (text := _text(params.get(f"os.{key}")))},
        hostname=_text(params.get("hostname")),
        timezone=_text(params.get("timezone.name")),
        interfaces=tuple(_interface(params, number) for number in range(_count(params, "if.count", MAX_INTERFACES))),
    )


def version_from_answer(answer: str) -> str:
    """The version out of the answer to guest-info; empty when the guest answers something else."""
    try:
        found = json.loads(answer)["return"]["version"]
    except (ValueError, KeyError, TypeError):
        return ""
    return _text(found)[:MAX_VERSION]


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
