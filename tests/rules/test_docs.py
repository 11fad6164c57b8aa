"""The pages for people are true: links lead somewhere, manifests are accepted, commands and flags exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from framework.documents import PAGES, ROOT, Block, anchors, blocks, code_words, commands, links, prose
from unit.api.reviews import ON_CREATE, TODAY_HOOKS, create, hooks

from virt_core.apis import registry
from virt_core.apis.gates import enabled_gates
from virt_core.apis.support.table import TODAY
from virt_core.kube.configvalues import ClusterConfig
from virt_local.main import cli as virt_local
from virtctl.main import cli as virtctl

GUIDE = ROOT / "docs" / "guide"
PROGRAMS: dict[str, click.Command] = {"virtctl": virtctl, "virt-local": virt_local}
TARGETS = frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), f"{_name(page)} links {link}, which is not there"
        assert not anchor or anchor in anchors(target), f"{_name(page)} links {link}, and there is no such heading"


def test_the_index_has_every_page_of_the_guide() -> None:
    pages = {page.name for page in GUIDE.glob("*.md")} - {"README.md"}
    assert pages == {link for link in links(GUIDE / "README.md") if "/" not in link}


def _manifests() -> list[Block]:
    return [each for page in sorted(GUIDE.glob("*.md")) for each in blocks(page) if each.language == "yaml"]


def _hooks_of(block: Block) -> Any:
    """Of a cluster with the gates that the page opens."""
    text = (ROOT / block.place.split(":")[0]).read_text(encoding="utf-8")
    gates = [gate for listed in re.findall(r"featureGates: \[([^\]]*)\]", text) for gate in listed.split(", ")]
    if not gates:
        return TODAY_HOOKS
    config = ClusterConfig(default_architecture="amd64", feature_gates=enabled_gates(enabled=gates))
    return hooks(config=config, support=TODAY)


@pytest.mark.parametrize("block", _manifests(), ids=lambda block: block.place)
def test_manifests_are_accepted(block: Block) -> None:
    for manifest in yaml.safe_load_all(block.text):
        kind, version = manifest["kind"], manifest["apiVersion"]
        assert registry.resource_by_kind(kind).api_version == version
        if kind in ON_CREATE:
            verdict = create(
                {**manifest, "metadata": {"namespace": "default", **manifest["metadata"]}}, using=_hooks_of(block)
            )
            assert verdict.code == 201, verdict.message


def _typed() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for block in blocks(page):
            if block.language in ("", "sh"):
                yield from ((block.place, words) for words in commands(block.text))


def _mentioned() -> Iterator[tuple[str, list[str]]]:
    """In the text of the guide, where a command need not be whole."""
    for page in GUIDE.glob("*.md"):
        for code in code_words(prose(page)):
            yield from ((_name(page), words) for words in commands(code))


def test_commands_and_flags_exist() -> None:
    wrong = [f"{place}: {' '.join(words)}: {fault}" for place, words in _typed() if (fault := _fault(words))]
    assert not wrong, "\n".join(wrong)


def test_commands_in_the_text_exist() -> None:
    found = ((place, words, _fault(words, whole=False)) for place, words in _mentioned())
    wrong = [f"{place}: {' '.join(words)}: {fault}" for place, words, fault in found if fault]
    assert not wrong, "\n".join(wrong)


def _fault(words: list[str], *, whole: bool = True) -> str:
    program, *args = words
    if program == "make":
        goals = [word for word in args if "=" not in word]
        return "" if TARGETS.issuperset(goals) else f"the Makefile has only {sorted(TARGETS)}"
    command = PROGRAMS.get(program)
    if command is None or args in ([], ["--help"]):
        return ""
    try:
        _parse(command, program, args)
    except click.UsageError as error:
        return "" if _is_no_fault(error, whole=whole) else error.format_message()
    return ""


def _is_no_fault(error: click.UsageError, *, whole: bool) -> bool:
    """What a page calls a file is not there when the test runs."""
    made_up = isinstance(error, click.BadParameter) and isinstance(getattr(error.param, "type", None), click.Path)
    return made_up or (not whole and isinstance(error, click.MissingParameter | click.BadOptionUsage))


def _parse(command: click.Command, name: str, args: list[str], parent: click.Context | None = None) -> None:
    """As click does before it runs anything."""
    if not isinstance(command, click.Group):
        command.make_context(name, args, parent=parent)
        return
    # With its settings, as a user's call has them: a command keeps the first help option that it was asked for.
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    _, rest, _ = command.make_parser(context).parse_args(args)
    found = command.get_command(context, rest[0]) if rest else None
    if found is None:
        raise click.UsageError(f"{name} has no command {' '.join(rest[:1]) or 'of no name'}")
    _parse(found, rest[0], rest[1:], context)


@pytest.mark.parametrize(
    "line",
    [
        "virtctl starrt web",
        "virtctl start --pausd web",
        "KUBECONFIG=x virt-local image inport layout --name x",
        "kubectl get vmi | virtctl frobnicate",
        "export KUBECONFIG=$(virt-local kubekonfig)",
        "make runn",
    ],
)
def test_a_slip_of_the_pen_is_found(line: str) -> None:
    assert any(_fault(words) for words in commands(line))
