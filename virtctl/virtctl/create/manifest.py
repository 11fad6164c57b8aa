"""What all manifests share: names, namespaces and how they are printed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import click

from virtctl.create.params import flag_error
from virtctl.options import Settings

F = TypeVar("F", bound=Callable[..., Any])
#: Without letters and digits that are easily mistaken for one another.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def output_option(function: F) -> F:
    choice = click.Choice(["yaml", "json"])
    return click.option("-o", "--output", type=choice, default="yaml", show_default=True, help="Output format.")(
        function
    )


def random_name(prefix: str) -> str:
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(5))


def check_label(flag: str, name: str) -> None:
    if not _LABEL.fullmatch(name):
        raise flag_error(flag, f'invalid name "{name}": lower case letters, digits and -, at most 63 of them')


def check_quantity(flag: str, text: str) -> str:
    from virt_core.apis.quantity import parse_quantity

    try:
        parse_quantity(text)
    except ValueError as error:
        raise flag_error(flag, str(error)) from error
    return text


def metadata(settings: Settings, name: str) -> dict[str, Any]:
    """The namespace is in it only where it was asked for: else `kubectl -n` decides."""
    return {"name": name} | ({"namespace": settings.namespace} if settings.namespace else {})


def show(manifest: dict[str, Any], form: str) -> None:
    from virtctl.output import document

    click.echo(document(manifest, form), nl=False)
