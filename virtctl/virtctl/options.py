"""The flags that every command shares, as kubectl has them. They may stand before or after the command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Settings:
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    server: str | None = None
    verbose: int = 0


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        setattr(ctx.ensure_object(Settings), param.name or "", value)


def _option(*names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, expose_value=False, callback=_remember, **attributes)


_OPTIONS = (
    _option("--kubeconfig", metavar="FILE", help="Kubeconfig file; else $KUBECONFIG, else ~/.kube/config."),
    _option("--context", metavar="NAME", help="Context of the kubeconfig."),
    _option("-n", "--namespace", metavar="NAME", help="Namespace; else that of the context."),
    _option("-s", "--server", metavar="URL", help="Address of the API server, instead of the context's."),
    _option("-v", "--verbose", count=True, help="Log every request."),
)


def connection_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
