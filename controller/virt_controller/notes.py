"""An Event that a decision asks for. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from virt_core.apis import names


@dataclass(frozen=True, slots=True)
class Note:
    reason: str
    message: str
    type: str = names.EVENT_NORMAL
