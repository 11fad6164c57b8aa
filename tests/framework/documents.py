"""Reads the Markdown of this repository: its links, its fenced blocks, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "charts" / "virtpod" / "README.md",
    ROOT / "hack" / "guest" / "README.md",
)
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_BETWEEN = frozenset({";", "&", "&&", "||", "|", "(", ")", ">", ">>", "<"})


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and where it is, for the message of a failure."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Those that stay in the repository."""
    return [target for target in _LINK.findall(prose(page)) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The headings, as links name them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(page)))
    return {heading.strip().replace(" ", "-") for heading in plain}


def code_words(text: str) -> list[str]:
    return _CODE.findall(text)


def commands(text: str) -> Iterator[list[str]]:
    """The single commands of a shell text, also those in a pipe or in $( ); without assignments in front. What is no
    shell, such as the answer of a command, gives words that name no program."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            yield from list(_split(line.strip()))
        except ValueError:  # A quotation that goes on in the next line.
            yield line.split()


def _split(line: str) -> Iterator[list[str]]:
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    for word in (*lexer, ";"):
        if word.endswith("$") or word in _BETWEEN:
            if bare := _without_assignments(words):
                yield bare
            words = []
        else:
            words.append(word)


def _without_assignments(words: list[str]) -> list[str]:
    while words and (re.match(r"[A-Za-z_]+=", words[0]) or words[0] in ("sudo", "export", "then", "do")):
        words = words[1:]
    return words
