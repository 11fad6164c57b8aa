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
    token: str | None = None
    as_user: str | None = None
    as_group: str | None = None
    certificate_authority: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False
    request_timeout: str | None = None
    verbose: int = 0

    def arguments(self) -> list[str]:
        """The flags that make another virtctl talk to the same cluster as the same user."""
        words: list[str] = []
        for flag in CONNECTION_FLAGS:
            value = getattr(self, ATTRIBUTES[flag])
            if value is True:
                words.append(flag)
            elif value:
                words.append(f"{flag}={value}")
        return words


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        setattr(ctx.ensure_object(Settings), param.name or "", value)


def _option(*names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, expose_value=False, callback=_remember, **attributes)


_HIDDEN: dict[str, Any] = {"hidden": True}

#: The first few are in every help; `virtctl options` has them all.
OPTIONS: tuple[Callable[[Any], Any], ...] = (
    _option("--kubeconfig", metavar="FILE", help="Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config."),
    _option("--context", metavar="NAME", help="Context of the kubeconfig."),
    _option("-n", "--namespace", metavar="NAME", help="Namespace. Default: the context's."),
    _option("-s", "--server", metavar="URL", help="Address of the API server, instead of the context's."),
    _option(
        "-v",
        "--v",
        "--verbose",
        "verbose",
        type=int,
        metavar="LEVEL",
        help="Log level; from 1 on every request is logged.",
    ),
    _option("--token", metavar="TOKEN", help="Bearer token, instead of the context's user.", **_HIDDEN),
    _option("--as", "as_user", metavar="USER", help="Act as this user.", **_HIDDEN),
    _option("--as-group", metavar="GROUP", help="Act as a member of this group.", **_HIDDEN),
    _option("--certificate-authority", metavar="FILE", help="File with the CA certificates to trust.", **_HIDDEN),
    _option("--client-certificate", metavar="FILE", help="File with the client certificate.", **_HIDDEN),
    _option("--client-key", metavar="FILE", help="File with the key of the client certificate.", **_HIDDEN),
    _option("--tls-server-name", metavar="NAME", help="Name to expect in the server's certificate.", **_HIDDEN),
    _option(
        "--insecure-skip-tls-verify", is_flag=True, help="Do not verify the server's certificate (insecure).", **_HIDDEN
    ),
    _option("--request-timeout", metavar="TIME", help="Give up on a request after this time, e.g. 10s.", **_HIDDEN),
)

CONNECTION_FLAGS = (
    "--kubeconfig", "--context", "--server", "--token", "--as", "--as-group", "--certificate-authority",
    "--client-certificate", "--client-key", "--tls-server-name", "--insecure-skip-tls-verify",
)  # fmt: skip
ATTRIBUTES = {flag: flag[2:].replace("-", "_") for flag in CONNECTION_FLAGS} | {"--as": "as_user"}
_NAMES = frozenset(Settings.__dataclass_fields__)


def connection_options(function: F) -> F:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def is_connection_option(param: click.Parameter) -> bool:
    return not param.expose_value and param.name in _NAMES
