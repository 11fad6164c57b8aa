"""Which instance a command means: by its name, or by the directory that it lives in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from virt_local.up.instance import Instance

F = TypeVar("F", bound=Callable[..., Any])


def place(function: F) -> F:
    """The two options that every command has."""
    function = click.option(
        "--data-dir", envvar="VIRT_LOCAL_DATA_DIR", help="Where everything is kept. [default: /var/lib/virtpod]"
    )(function)
    return click.option(
        "--instance", envvar="VIRT_LOCAL_INSTANCE", help="A name, to run several side by side. [default: vp]"
    )(function)


def existing_instance(name: str | None, data_dir: str | None) -> Instance:
    """The instance as its last `up` made it; with its defaults when there was none."""
    from virt_local.up.errors import place_error
    from virt_local.up.instance import DEFAULT_NAME, default_data_dir, make_instance
    from virt_local.up.state import load_instance

    directory = Path(data_dir or default_data_dir(name or DEFAULT_NAME)).absolute()
    try:
        found = load_instance(directory)
    except OSError as err:
        raise place_error(err) from err
    return found[0] if found else make_instance(name or DEFAULT_NAME, str(directory))
