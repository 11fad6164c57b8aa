"""`virtctl completion`: the script that makes the shell complete our commands and flags."""

from __future__ import annotations

import click

_HOW = {
    "bash": "source <(virtctl completion bash)",
    "zsh": "source <(virtctl completion zsh)",
    "fish": "virtctl completion fish | source",
    "powershell": "virtctl completion powershell | Out-String | Invoke-Expression",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_HOW)))
def command(shell: str) -> None:
    """Print the completion script for a shell; load it with `source <(virtctl completion bash)`."""
    from click.shell_completion import get_completion_class

    from virtctl.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"there is no completion for {shell}")
    script = kind(cli, {}, "virtctl", "_VIRTCTL_COMPLETE")
    click.echo(f"# {_HOW[shell]}")
    # Not `source()`: for bash it starts the shell to ask for its version.
    click.echo(script.source_template % script.source_vars())
