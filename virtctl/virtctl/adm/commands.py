"""The table of administration commands."""

from __future__ import annotations

from virtctl.cli import group

COMMANDS = {"log-verbosity": ("virtctl.adm.logverbosity:command", "Show, set or reset how much components log.")}


@group("adm", COMMANDS)
def commands() -> None:
    """Administer the installation."""
