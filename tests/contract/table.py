"""The table of cases: a name, the subject it belongs to, and a function that talks to a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contract.talk import Talk

Conversation = Callable[["Talk"], None]


class NotYet(Exception):
    """The server cannot be asked this now; the text says why."""


@dataclass(frozen=True)
class Case:
    """`words` is False where a message is made of another language's own error text: only its presence is compared."""

    subject: str
    name: str
    run: Conversation
    words: bool = True
    ownership: bool = False  # compare metadata.managedFields too

    @property
    def id(self) -> str:
        return f"{self.subject}/{self.name}"


CASES: dict[str, Case] = {}


def case(*, words: bool = True, ownership: bool = True) -> Callable[[Conversation], Conversation]:
    """Adds a function to the table, under its module's and its own name."""

    def add(run: Conversation) -> Conversation:
        subject = run.__module__.rpartition(".")[2]
        found = Case(subject, run.__name__, run, words, ownership)
        assert found.id not in CASES, f"there are two cases {found.id}"
        CASES[found.id] = found
        return run

    return add
