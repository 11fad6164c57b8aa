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
        "--data-dir",
        envvar="VIRT_LOCAL_DATA_DIR",
        help="Directory of its data. [default: where it was started last, else /var/lib/virtpod]",
    )(function)
    return click.option(
        "--instance",
        envvar="VIRT_LOCAL_INSTANCE",
        help="Name of the instance; several can run side by side. [default: vp]",
    )(function)


def existing_instance(name: str | None, data_dir: str | None) -> Instance:
    """The instance as its last `up` made it; with its defaults when there was none."""
    from virt_local.up.errors import place_error
    from virt_local.up.instance import DEFAULT_NAME, SettingsError, make_instance
    from virt_local.up.state import load_instance

    directory = Path(place_of(name, data_dir)).absolute()
    try:
        found = load_instance(directory)
    except OSError as err:
        raise place_error(err) from err
    if found is None:
        return make_instance(name or DEFAULT_NAME, str(directory))
    if name is not None and found[0].name != name:
        raise SettingsError(f"--data-dir {directory} is the place of instance {found[0].name}, not of {name}")
    return found[0]


def place_of(name: str | None, data_dir: str | None) -> str:
    """The directory that was given, or the one where an instance of that name lives: the name is enough."""
    from virt_local.up import whereabouts
    from virt_local.up.errors import place_error
    from virt_local.up.instance import DEFAULT_NAME

    try:
        return data_dir or str(whereabouts.find(name or DEFAULT_NAME))
    except OSError as err:
        raise place_error(err) from err
