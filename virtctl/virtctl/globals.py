"""`virtctl options`: the flags that every command takes."""

from __future__ import annotations

import click

from virtctl.options import connection_options


@click.command("options")
@click.pass_context
def command(ctx: click.Context) -> None:
    """List the flags that every command takes, before or after its name."""

    @click.command()
    @connection_options
    def every() -> None:
        """Only carries the flags."""

    formatter = ctx.make_formatter()
    rows = []
    for param in every.params:
        if isinstance(param, click.Option):
            param.hidden = False
            if record := param.get_help_record(ctx):
                rows.append(record)
    with formatter.section("These flags go with every command"):
        formatter.write_dl(rows)
    click.echo(formatter.getvalue(), nl=False)
