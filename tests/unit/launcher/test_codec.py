"""The codec: places, words for booleans, errors that name the field."""

# ruff: noqa: RUF009 - `at` is a field specifier like dataclasses.field
from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree as ET

import pytest

from virt_launcher.domain.codec import ON_OFF, DomainXmlError, at, flag, from_element, many, to_element
from virt_launcher.domain.domain import from_xml


@dataclass(kw_only=True)
class Leaf:
    name: str | None = at("@name")
    text: str | None = at("")


@dataclass(kw_only=True)
class Tree:
    number: int | None = at("a/@number")
    yes: bool | None = at("a/@yes")
    on: bool | None = at("a/b/@on", words=ON_OFF)
    word: str | None = at("a/b")
    present: bool = flag("c")
    leaf: Leaf | None = at("leaf")
    leaves: list[Leaf] = many("many/leaf")
    words: list[str] = many("words/word")


FULL = Tree(
    number=3,
    yes=False,
    on=True,
    word="w",
    present=True,
    leaf=Leaf(name="x", text="t"),
    leaves=[Leaf(name="1"), Leaf(name="2")],
    words=["u", "v"],
)


def text(tree: Tree) -> str:
    return ET.tostring(to_element(tree, "tree"), encoding="unicode")


def test_every_kind_of_place() -> None:
    assert text(FULL) == (
        '<tree><a number="3" yes="no"><b on="on">w</b></a><c /><leaf name="x">t</leaf>'
        '<many><leaf name="1" /><leaf name="2" /></many><words><word>u</word><word>v</word></words></tree>'
    )


def test_reads_what_it_writes() -> None:
    read = from_element(to_element(FULL, "tree"), Tree)
    assert [leaf.name for leaf in read.leaves] == ["1", "2"]
    assert (read.number, read.yes, read.on, read.word, read.present, read.words) == (
        3,
        False,
        True,
        "w",
        True,
        ["u", "v"],
    )


def test_absent_stays_absent() -> None:
    assert text(Tree()) == "<tree />"
    assert from_element(ET.fromstring("<tree/>"), Tree) == Tree()


@pytest.mark.parametrize("document", ['<tree><a number="x"/></tree>', '<tree><a yes="on"/></tree>'])
def test_a_bad_value_names_its_field(document: str) -> None:
    with pytest.raises(DomainXmlError, match=r"number|yes"):
        from_element(ET.fromstring(document), Tree)


@pytest.mark.parametrize("document", ["", "<network/>", "<domain"])
def test_what_is_no_domain(document: str) -> None:
    with pytest.raises(DomainXmlError):
        from_xml(document)
