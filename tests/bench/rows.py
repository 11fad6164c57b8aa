"""A row of a bench's table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Row:
    what: str
    value: str
    aim: str = ""


def show(rows: list[Row]) -> None:
    print()
    for row in rows:
        print(f"{row.what:<52} {row.value:<52} {row.aim}")
