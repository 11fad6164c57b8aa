"""Every flag of every component is also an environment variable: `virt-handler --node-name` is VIRT_HANDLER_NODE_NAME.

With click: `@click.command(context_settings=click_settings("virt-handler"))`. Programs that count their imports use
argparse and `EnvParser`.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any


def env_prefix(component: str) -> str:
    """`virt-handler` → `VIRT_HANDLER`."""
    return component.upper().replace("-", "_")


def env_name(component: str, flag: str) -> str:
    """`virt-handler`, `--node-name` → `VIRT_HANDLER_NODE_NAME`."""
    return f"{env_prefix(component)}_{flag.lstrip('-').upper().replace('-', '_')}"


def click_settings(component: str) -> dict[str, Any]:
    return {
        "auto_envvar_prefix": env_prefix(component),
        "help_option_names": ["-h", "--help"],
        "max_content_width": 120,
        "show_default": True,
    }


class EnvParser(argparse.ArgumentParser):
    """An ArgumentParser whose options take their defaults from the environment."""

    def __init__(self, component: str, environ: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(prog=component, **options)
        self._component = component
        self._environ = os.environ if environ is None else environ

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        for action in self._actions:
            if action.option_strings and action.dest != "help":
                self._take_default(action)
        return super().parse_args(args, namespace)

    def _take_default(self, action: argparse.Action) -> None:
        name = env_name(self._component, action.option_strings[-1])
        value = self._environ.get(name)
        if value is None:
            return
        if action.nargs == 0:
            action.default = _boolean(value, name, self)
        else:
            # argparse converts and checks text defaults with the option's own type.
            action.default = value
        action.required = False


_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "": False,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _boolean(value: str, name: str, parser: argparse.ArgumentParser) -> bool:
    if value.lower() not in _WORDS:
        parser.error(f"{name}={value!r} is neither true nor false")
    return _WORDS[value.lower()]


_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+[smhd])+")


def duration(text: str) -> timedelta:
    """`90s`, `5m`, `24h`, `7d`, `1h30m`. Raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration such as 90s, 5m, 24h or 1h30m")
    parts = re.findall(r"(\d+)([smhd])", text)
    return timedelta(seconds=sum(int(number) * _UNITS_S[unit] for number, unit in parts))
