"""Bounds on what a guest or its launcher may send: how much, how long. Pure."""

from __future__ import annotations

#: A domain message with ten interfaces is below 4 KiB.
MAX_NOTIFY_BYTES = 256 * 1024
MAX_INTERFACES = 64
#: What a guest agent can do; there are some fifty commands.
MAX_COMMANDS = 128
MAX_GUEST_ONLY_INTERFACES = 10
MAX_ADDRESSES = 32
#: As many as a VMI may have volumes.
MAX_DISKS = 256
#: Reasons for a restart; the first ones are reason enough.
MAX_NEEDS = 8
MAX_WORD = 253
MAX_TEXT = 1024


def clip(text: str, limit: int = MAX_TEXT) -> str:
    """Text from a guest, without control characters and of bounded length."""
    clean = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
