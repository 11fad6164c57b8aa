"""Facts once: a name that programs agree on is declared in one place, is used, and is not spelled out elsewhere."""

from __future__ import annotations

import ast
import re
from functools import cache

from framework import sources
from framework.sources import Source, constants, functions, product, taken, texts, tools

from virt_core.apis import handoffs

NAMES = "virt_core.apis.names"
APIS = "virt_core.apis."

#: Our programs' own names; as service accounts, leases and labels they stand in names.py too.
PROGRAMS = frozenset({"virt-api", "virt-controller", "virt-handler", "virt-launcher"})
#: Module and text → what else it means there.
OTHER_MEANING = {
    ("virt_core.apis.snapshot", "InProgress"): "a phase of a snapshot",
    ("virt_launcher.hypervisor.states", "ShuttingDown"): "a state of a domain",
    ("virt_launcher.hypervisor.ports", "ShuttingDown"): "a state of a domain",
}
#: virt-local stands in for Kubernetes, whose reasons and conditions some of our words repeat.
KUBERNETES = "virt_local."


def _source(module: str) -> Source:
    return next(source for source in product() if source.module == module)


@cache
def _used() -> set[tuple[str, str]]:
    return set().union(*(taken(source) for source in (*product(), *tools())))


def test_every_name_is_used() -> None:
    source = _source(NAMES)
    declared = constants(source).keys() | functions(source)
    assert sorted(name for name in declared if (NAMES, name) not in _used()) == []


def test_every_constant_of_the_api_is_used() -> None:
    unused = [
        f"{source.module}.{name}"
        for source in product()
        if source.module.startswith(APIS)
        for name in constants(source)
        if (source.module, name) not in _used()
    ]
    assert sorted(unused) == []


def is_telling(text: str) -> bool:
    """Whether a text can hardly mean anything else: two words at least, or a path, a domain, a file with an ending."""
    return len(text) > 3 and (bool(re.search(r"[-./]", text)) or len(re.findall(r"[A-Z][a-z]+", text)) > 1)


def _declared() -> dict[str, str]:
    """Text → the constant that stands for it."""
    found = {}
    for name, value in constants(_source(NAMES)).items():
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and is_telling(value.value):
            found[value.value] = f"names.{name}"
    for kind in handoffs.HANDOFFS:
        if is_telling(kind.name):
            found[kind.name] = f"the name of a handoff in {handoffs.__name__}"
    return {text: name for text, name in found.items() if text not in PROGRAMS}


def _is_declared_there(source: Source, text: str) -> bool:
    if source.module in (NAMES, handoffs.__name__) or (source.module, text) in OTHER_MEANING:
        return True
    return source.module.startswith(KUBERNETES) and not re.search(r"[-./]", text)


def test_no_literal_repeats_a_name() -> None:
    declared = _declared()
    repeated = [
        f"{source.where}:{line}: {text!r} is {declared[text]}"
        for source in product()
        for line, text in texts(source)
        if text in declared and not _is_declared_there(source, text)
    ]
    assert repeated == []


def test_the_exceptions_are_needed() -> None:
    found = {(source.module, text) for source in product() for _, text in texts(source)}
    assert OTHER_MEANING.keys() <= found


def test_what_counts_as_telling() -> None:
    assert all(map(is_telling, ("PodScheduled", "launcher-sock", "/var/run/kubevirt", "tls.crt", "kubevirt.io")))
    assert not any(map(is_telling, ("Failed", "v1", "name", "running", "", "KVM")))


def test_the_rules_see_what_they_are_for() -> None:
    """A made-up module that repeats a label, and one that uses a name in each of the ways."""
    repeats = _parsed('KEY = "kubevirt.io/created-by"\n')
    assert [text in _declared() for _, text in texts(repeats)] == [True]
    takes = _parsed("from virt_core.apis import names as n\nfrom virt_core.apis.names import GROUP\nn.VERSION\n")
    assert {name for module, name in taken(takes) if module == NAMES} == {"GROUP", "VERSION"}


def _parsed(text: str) -> Source:
    return Source("virt_x", sources.ROOT / "x.py", ast.parse(text))
