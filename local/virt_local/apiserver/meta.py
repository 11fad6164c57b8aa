"""Small helpers for the metadata of objects: names, times, owners."""

from __future__ import annotations

import re
import secrets
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

Object = dict[str, Any]

# No vowels and no look-alikes, so that generated names spell nothing.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LENGTH = 5
_MAX_GENERATED_BASE = 58

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def now_text() -> str:
    return time_text(datetime.now(UTC))


def time_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def later_text(seconds: float) -> str:
    return time_text(datetime.now(UTC) + timedelta(seconds=seconds))


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def new_uid() -> str:
    return str(uuid.uuid4())


def generated_name(base: str) -> str:
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_GENERATED_LENGTH))
    return base[:_MAX_GENERATED_BASE] + suffix


def is_subdomain(text: str) -> bool:
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_dns_label(text: str) -> bool:
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_path_segment(text: str) -> bool:
    """What RBAC names and the like may be: anything that can stand in a path."""
    return text not in ("", ".", "..") and "/" not in text and "%" not in text


def is_qualified_name(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return 0 < len(name) <= 63 and _QUALIFIED.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    return len(text) <= 63 and (text == "" or _QUALIFIED.fullmatch(text) is not None)


def finalizers(obj: Object) -> list[str]:
    return obj["metadata"].get("finalizers") or []


def is_terminating(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def key_text(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}".lstrip("/")
