"""How commands are declared: the shared flags, Go's way to write boolean flags, and groups that import lazily."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from virtctl.options import connection_options, is_connection_option

_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")
#: Name of a command: where its click command is, and what the overview says of it.
Table = Mapping[str, tuple[str, str]]


class Command(click.Command):
    """Takes `--flag=true` and `--flag=false` too, as every script written for KubeVirt's virtctl may."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, plain_flags(self, args))


class LazyGroup(click.Group):
    """Nothing of a command is imported until it is called."""

    table: Table = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        found: click.Command = getattr(import_module(module), attribute)
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, plain_flags(self, args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """From the table: the real commands would have to be imported for one line of help each."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(self.table.items())])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        names = [CompletionItem(n, help=t) for n, (_, t) in sorted(self.table.items()) if n.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Every failure ends with exit code 1, wrong usage too, as kubectl and KubeVirt's virtctl do."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            error.show()
            code = 1
        except (click.Abort, KeyboardInterrupt):
            click.echo("Aborted.", err=True)
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


def command(
    name: str, cls: type[Command] = Command, **attributes: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with the shared flags at the end of its help, called with the settings first."""

    def declare(function: Callable[..., Any]) -> click.Command:
        made = click.command(name, cls=cls, **attributes)(connection_options(click.pass_obj(function)))
        made.params.sort(key=is_connection_option)
        return made

    return declare


def group(name: str, table: Table, **attributes: Any) -> Callable[[Callable[..., Any]], LazyGroup]:
    def declare(function: Callable[..., Any]) -> LazyGroup:
        made = click.group(name, cls=LazyGroup, **attributes)(connection_options(function))
        made.table = table
        return made

    return declare


def first_argument(command: click.Command, args: list[str]) -> str:
    """The first word that is neither a flag nor a flag's value."""
    with_value = {
        name for p in command.params if isinstance(p, click.Option) and not p.is_flag and not p.count for name in p.opts
    }
    words = iter(args)
    for word in words:
        if not word.startswith("-"):
            return word
        if word in with_value:
            next(words, None)
    return ""


def plain_flags(command: click.Command, args: list[str]) -> list[str]:
    """What Go takes and click does not: `--flag=true`, `--flag=false` and `-o=json`, as click wants it."""
    flags: dict[str, click.Option] = {}
    for param in command.params:
        if isinstance(param, click.Option) and param.is_flag:
            flags |= dict.fromkeys(param.opts, param)
    plain: list[str] = []
    for index, word in enumerate(args):
        if word == "--":
            return plain + args[index:]
        plain += _plain(word, flags)
    return plain


def _plain(word: str, flags: Mapping[str, click.Option]) -> list[str]:
    """A flag that is false becomes `--no-flag` where there is one, else nothing."""
    name, equals, value = word.partition("=")
    option = flags.get(name)
    if not equals or not name.startswith("-"):
        return [word]
    if option is None:
        return [name, value] if len(name) == 2 else [word]
    if value.lower() in _TRUE:
        return [name]
    if value.lower() in _FALSE:
        return option.secondary_opts[:1]
    raise click.BadParameter(f"{value!r} is neither true nor false", param_hint=name)
