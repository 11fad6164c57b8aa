"""Structured logs: pretty on a terminal, one JSON object a line everywhere else.

`get_logger` gives a thin logger in structlog's call style, `log.bind(vmi=…).info("guest started", pid=…)`. It costs
nothing at import; where its lines go is decided by `configure`: normally to structlog (virt_core.runtime.structured).
With `light=True` they are written by the few lines below instead: importing structlog costs 60 to 110 ms and up to
10 MiB, which virt-launcher would pay once for each VM and virtctl at each call. Both write the same keys.
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
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"

Event = dict[str, Any]
Renderer = Callable[[Event], str]
#: Takes level, message and fields to the stream, unless the level is too low.
Sink = Callable[[str, str, Event], None]

_encoder = msgspec.json.Encoder(enc_hook=str)
_write_lock = threading.Lock()


def render_json(event: Event) -> str:
    try:
        return _encoder.encode(event).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        # A field that cannot be encoded (a key that is no string, a broken surrogate) must not cost us the line.
        return _encoder.encode({k: ascii(v) for k, v in event.items()}).decode()


def configure(component: str, level: str = "info", json: bool | None = None, *, light: bool = False) -> None:
    """Sets up the logs of this process. `json=None`: JSON unless standard error is a terminal."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    as_json = not sys.stderr.isatty() if json is None else json
    if light:
        _Route.sink = staticmethod(LightSink(component, render_json if as_json else _render_text))
    else:
        from virt_core.runtime.structured import structlog_sink

        _Route.sink = staticmethod(structlog_sink(component, as_json=as_json))
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    set_level(level)


def set_level(level: str) -> None:
    """Changes the least level of a running process; one of LEVELS."""
    _Route.threshold = LEVELS[level]
    logging.getLogger().setLevel(max(LEVELS[level], logging.WARNING))


class LightSink:
    """What structlog does for the services, for a process that cannot afford it."""

    def __init__(self, component: str, render: Renderer) -> None:
        self._component = component
        self._render = render

    def __call__(self, level: str, msg: str, fields: Event) -> None:
        now = datetime.now(UTC).strftime(TIME_FORMAT)
        head: Event = {"level": level, "timestamp": now, "component": self._component, "msg": msg}
        event = {**head, **fields, **head}
        _add_exception(event)
        line = self._render(event) + "\n"
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


def _render_text(event: Event) -> str:
    """For a terminal, without colours: time of day, level, message, fields."""
    rest = dict(event)
    del rest["component"]
    level, timestamp, msg = rest.pop("level"), rest.pop("timestamp"), rest.pop("msg")
    exception = rest.pop("exception", "")
    fields = "".join(f" {key}={value}" for key, value in rest.items())
    return f"{timestamp[11:23]} {level:<7} {msg}{fields}" + (f"\n{exception}" if exception else "")


class _Route:
    """Where lines go. Loggers look here at each call, so module-level loggers may be made before `configure`."""

    sink: Sink = staticmethod(LightSink("", render_json))
    threshold = LEVELS["info"]


def _emit(level: str, msg: str, fields: Event) -> None:
    if LEVELS[level] >= _Route.threshold:
        _Route.sink(level, msg, fields)


class Logger:
    __slots__ = ("_fields",)

    def __init__(self, fields: Event) -> None:
        self._fields = fields

    def bind(self, **fields: Any) -> Logger:
        """A logger that adds these fields to every line."""
        return Logger({**self._fields, **fields})

    def debug(self, msg: str, **fields: Any) -> None:
        _emit("debug", msg, {**self._fields, **fields})

    def info(self, msg: str, **fields: Any) -> None:
        _emit("info", msg, {**self._fields, **fields})

    def warning(self, msg: str, **fields: Any) -> None:
        _emit("warning", msg, {**self._fields, **fields})

    def error(self, msg: str, **fields: Any) -> None:
        _emit("error", msg, {**self._fields, **fields})

    def exception(self, msg: str, **fields: Any) -> None:
        """An error with the traceback of the exception that is being handled."""
        _emit("error", msg, {"exc_info": True, **self._fields, **fields})


def get_logger(name: str = "", **fields: Any) -> Logger:
    """`get_logger(__name__)` at the top of a module."""
    return Logger({"logger": name, **fields} if name else fields)


class _Bridge(logging.Handler):
    """Brings what libraries log with the standard library into the same stream."""

    def emit(self, record: logging.LogRecord) -> None:
        level = next((name for name, number in reversed(LEVELS.items()) if record.levelno >= number), "debug")
        fields: Event = {"logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            fields["exc_info"] = record.exc_info
        _emit(level, record.getMessage(), fields)
