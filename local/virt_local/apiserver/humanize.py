"""Durations in the words of kubectl: `45s`, `3m12s`, `5h`, `12d`, `2y45d`."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "<unknown>"

_SECOND, _MINUTE, _HOUR, _DAY, _YEAR = 1, 60, 3600, 86400, 365 * 86400


def short_duration(seconds: float) -> str:
    """Two units while they are small, one when they are not: nobody asks for the seconds of a day."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    total = max(total, 0)
    if total < 2 * _MINUTE:
        return f"{total}s"
    if total < 10 * _MINUTE:
        return _two(total, _MINUTE, "m", _SECOND, "s")
    if total < 3 * _HOUR:
        return f"{total // _MINUTE}m"
    if total < 8 * _HOUR:
        return _two(total, _HOUR, "h", _MINUTE, "m")
    if total < 2 * _DAY:
        return f"{total // _HOUR}h"
    if total < 8 * _DAY:
        return _two(total, _DAY, "d", _HOUR, "h")
    if total < 2 * _YEAR:
        return f"{total // _DAY}d"
    if total < 8 * _YEAR:
        return _two(total, _YEAR, "y", _DAY, "d")
    return f"{total // _YEAR}y"


def _two(total: int, big: int, big_unit: str, small: int, small_unit: str) -> str:
    rest = total % big // small
    return f"{total // big}{big_unit}{rest}{small_unit}" if rest else f"{total // big}{big_unit}"


def since(timestamp: object, now: datetime | None = None) -> str:
    """How long ago an RFC 3339 time was."""
    if not isinstance(timestamp, str) or not timestamp:
        return UNKNOWN
    try:
        moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    except ValueError:
        return UNKNOWN
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return short_duration(((now or datetime.now(UTC)) - moment).total_seconds())
