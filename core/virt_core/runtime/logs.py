"""Structured logs: pretty on a terminal (by structlog), one JSON object a line everywhere else.

The loggers have structlog's call style, `log.bind(vmi=…).info("guest started", pid=…)`, but they are our own few lines:
importing structlog costs 110 ms and 18 MiB, which each launcher would pay, and no container has a terminal for colours.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Event = dict[str, Any]
Renderer = Callable[[Event], str]

_encoder = msgspec.json.Encoder(enc_hook=str)
_write_lock = threading.Lock()


def _render_json(event: Event) -> str:
    try:
        return _encoder.encode(event).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        # A field that can not be encoded (a key that is no string, a broken surrogate) must not cost us the line.
        return _encoder.encode({k: ascii(v) for k, v in event.items()}).decode()


class _Settings:
    """What `configure` last said; loggers read it at each call, so module-level loggers may be made before."""

    component = ""
    threshold = LEVELS["info"]
    render: Renderer = staticmethod(_render_json)


def _pretty_renderer() -> Renderer:
    from structlog.dev import ConsoleRenderer

    console = ConsoleRenderer(event_key="msg")

    def render(event: Event) -> str:
        event = dict(event)
        event.pop("component", None)
        # Time of day only: whoever watches a terminal knows the date.
        event["timestamp"] = event["timestamp"][11:23]
        return str(console(None, event["level"], event))

    return render


def configure(component: str, level: str = "info", json: bool | None = None) -> None:
    """Sets up the logs of this process. `json=None`: JSON unless standard error is a terminal."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    _Settings.component = component
    _Settings.threshold = LEVELS[level]
    as_json = not sys.stderr.isatty() if json is None else json
    _Settings.render = staticmethod(_render_json if as_json else _pretty_renderer())
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(max(_Settings.threshold, logging.WARNING))


class Logger:
    __slots__ = ("_fields",)

    def __init__(self, fields: Event) -> None:
        self._fields = fields

    def bind(self, **fields: Any) -> Logger:
        """A logger that adds these fields to every line."""
        return Logger({**self._fields, **fields})

    def debug(self, msg: str, **fields: Any) -> None:
        self._emit("debug", msg, fields)

    def info(self, msg: str, **fields: Any) -> None:
        self._emit("info", msg, fields)

    def warning(self, msg: str, **fields: Any) -> None:
        self._emit("warning", msg, fields)

    def error(self, msg: str, **fields: Any) -> None:
        self._emit("error", msg, fields)

    def exception(self, msg: str, **fields: Any) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._emit("error", msg, {"exc_info": True, **fields})

    def _emit(self, level: str, msg: str, fields: Event) -> None:
        if LEVELS[level] < _Settings.threshold:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        event: Event = {"level": level, "timestamp": now, "component": _Settings.component, "msg": msg}
        event.update(self._fields)
        event.update(fields)
        _add_exception(event)
        line = _Settings.render(event) + "\n"
        with _write_lock:
            sys.stderr.write(line)
            sys.stderr.flush()


def _add_exception(event: Event) -> None:
    exc_info = event.pop("exc_info", None)
    if exc_info is True:
        exc_info = sys.exc_info()[1]
    elif isinstance(exc_info, tuple):
        exc_info = exc_info[1]
    if isinstance(exc_info, BaseException):
        event["exception"] = "".join(traceback.format_exception(exc_info)).rstrip()


def get_logger(name: str = "", **fields: Any) -> Logger:
    """`get_logger(__name__)` at the top of a module."""
    return Logger({"logger": name, **fields} if name else fields)


class _Bridge(logging.Handler):
    """Brings what libraries log with the standard library into the same stream."""

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for name, number in reversed(LEVELS.items()) if record.levelno >= number), "debug")
        Logger({"logger": record.name})._emit(level, record.getMessage(), {"exc_info": record.exc_info})
