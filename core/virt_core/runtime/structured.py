"""structlog, as the services log with it: the only `import structlog`, and only once `logs.configure` asks for it."""

from __future__ import annotations

import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from virt_core.runtime.logs import LEVELS, TIME_FORMAT, Event, Sink, render_json

#: These come first in a line, in this order, and no field of the same name takes their place.
_FIRST = ("level", "timestamp", "component", "msg")


def structlog_sink(component: str, *, as_json: bool) -> Sink:
    """Configures structlog for this process and returns the way into it."""
    structlog.configure(
        processors=_processors(component, as_json),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS["debug"]),
        logger_factory=_to_standard_error,
        cache_logger_on_first_use=False,
    )
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()

    def sink(level: str, msg: str, fields: Event) -> None:
        # As a context, not as arguments: a field may have any name, `event` too.
        logger.bind(**fields).log(LEVELS[level], msg)

    return sink


def _processors(component: str, as_json: bool) -> list[Processor]:
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt=TIME_FORMAT, utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("msg"),
        _Component(component),
    ]
    if as_json:
        return [*shared, structlog.processors.JSONRenderer(serializer=_serialize)]
    plain = structlog.dev.plain_traceback
    console = structlog.dev.ConsoleRenderer(event_key="msg", exception_formatter=plain)
    return [*shared, _for_people, console]


class _Component:
    """Adds who speaks, and puts the keys that every line has in front."""

    def __init__(self, component: str) -> None:
        self._component = component

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["component"] = self._component
        first = {key: event.pop(key) for key in _FIRST}
        return {**first, **event}


def _serialize(event: Event, **_options: Any) -> str:
    return render_json(event)


def _for_people(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Time of day only: whoever watches a terminal knows the date, and which program it is."""
    event["timestamp"] = event["timestamp"][11:23]
    del event["component"]
    return event


def _to_standard_error(*_names: Any) -> structlog.WriteLogger:
    return structlog.WriteLogger(sys.stderr)
