"""The table of commands. Nothing else is imported until one of them is called."""

from __future__ import annotations

from importlib import import_module

import click

from virtctl.options import Settings, connection_options

#: Command: where its click command is, and what the overview says of it.
COMMANDS = {
    "console": ("virtctl.console.command:command", "Connect to the serial console of a VMI."),
    "explain": ("virtctl.explain.command:command", "Say where a VM or VMI stands and why, with its timeline."),
    "pause": ("virtctl.lifecycle:pause", "Stop the virtual CPUs of a VM or VMI."),
    "unpause": ("virtctl.lifecycle:unpause", "Let the virtual CPUs of a VM or VMI go on."),
    "version": ("virtctl.version:command", "Print the versions of virtctl and of the server."),
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """From the table: the real commands would have to be imported for one line of help each."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in sorted(COMMANDS.items())])


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "VIRTCTL",
        "max_content_width": 120,
    },
)
@connection_options
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Control virtual machines that run in Kubernetes Pods.

    Exit codes: 0 done, 1 it did not work (one sentence says why), 2 wrong usage.
    """
    ctx.ensure_object(Settings)


def main() -> None:
    cli(prog_name="virtctl")
