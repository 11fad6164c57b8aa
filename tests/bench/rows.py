"""A row of a bench's table: what was measured, its floor in the same run, how they compare, and the aim."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Row:
    what: str
    value: str
    aim: str = ""
    floor: str = ""
    ratio: str = ""


def times(ours: float, floor: float) -> str:
    return f"{ours / floor:.1f}x" if floor else ""


def show(rows: list[Row]) -> None:
    table = [("", "measured", "floor", "ratio", "aim"), *((r.what, r.value, r.floor, r.ratio, r.aim) for r in rows)]
    used = [column for column in range(5) if any(line[column] for line in table[1:])]
    widths = {column: max(len(line[column]) for line in table) for column in used}
    print()
    for line in table:
        print("  ".join(f"{line[column]:<{widths[column]}}" for column in used).rstrip(), flush=True)
