"""Flags with several parameters in one word: `--volume-pvc=src:my-claim,name:data,bootorder:1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

#: Parameter: `str`, `uint`, `quantity` or `list` (its values are separated by semicolons).
Shape = Mapping[str, str]

_EXAMPLES = {"str": "…", "uint": "1", "quantity": "1Gi", "list": "…;…"}


def flag_error(flag: str, message: str) -> click.ClickException:
    return click.ClickException(f'failed to parse "--{flag}" flag: {message}')


def parse(flag: str, text: str, shape: Shape) -> dict[str, Any]:
    """The parameters that were given. Raises ClickException for those that the shape does not know."""
    given = split(flag, text)
    unknown = [f"{name}:{value}" for name, value in given.items() if name not in shape]
    if unknown:
        raise flag_error(flag, f"unknown param(s): {','.join(unknown)}")
    return {name: _value(flag, name, value, shape[name]) for name, value in given.items()}


def split(flag: str, text: str) -> dict[str, str]:
    if not text:
        raise flag_error(flag, "params may not be empty")
    given: dict[str, str] = {}
    for param in text.split(","):
        name, colon, value = param.partition(":")
        if not colon:
            raise flag_error(flag, f"params need to have at least one colon: {param}")
        given[name] = value
    return given


def _value(flag: str, name: str, text: str, kind: str) -> Any:
    if kind == "list":
        return text.split(";")
    if kind == "uint":
        if not text.isdecimal():
            raise flag_error(flag, f'failed to parse param "{name}": {text!r} is no number')
        return int(text)
    if kind == "quantity":
        from virtctl.create.manifest import check_quantity

        return check_quantity(flag, text)
    return text


def required(flag: str, params: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if not params.get(name):
            raise flag_error(flag, f"{name} must be specified")


def prefixed(flag: str, text: str, what: str = "") -> tuple[str, str]:
    """`prefix/name` or `name`."""
    prefix, _, name = text.rpartition("/")
    if "/" in prefix:
        raise flag_error(flag, f"{what}invalid count {text.count('/')} of slashes in prefix/name")
    if not name:
        raise flag_error(flag, f"{what}name cannot be empty")
    return prefix, name


def described(shape: Shape) -> str:
    """For the help: `name:…, src:…`."""
    return ", ".join(f"{name}:{_EXAMPLES[kind]}" for name, kind in shape.items())
