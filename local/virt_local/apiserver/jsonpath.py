"""The part of JSONPath that printer columns use: fields, indexes, wildcards and `[?(@.type=='Ready')]` filters."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Step = Callable[[list[Any]], list[Any]]

_TOKEN = re.compile(
    r"""\.(?P<field>[A-Za-z_$][\w$-]*|\*)
      | \[\s*(?P<index>-?\d{1,9}|\*)\s*\]
      | \[\s*(?P<quote>['"])(?P<name>[^'"]*)(?P=quote)\s*\]
      | \[\?\(\s*@(?P<left>(?:\.[\w$-]+)+)\s*(?P<op>==|!=)\s*(?P<right>'[^']*'|"[^"]*"|[\w.-]+)\s*\)\]
      | \.\['(?P<dotted>[^']*)'\]""",
    re.VERBOSE,
)


class BadPath(ValueError):
    """The text is not a path that we can read."""


@lru_cache(maxsize=1024)
def compile_path(text: str) -> Callable[[Any], list[Any]]:
    """A function from a document to all values that the path selects."""
    steps = _parse(text.strip().removeprefix("{").removesuffix("}"))

    def find(document: Any) -> list[Any]:
        values = [document]
        for step in steps:
            values = step(values)
        return values

    return find


def first(text: str, document: Any) -> Any:
    """The first selected value, or None."""
    return next(iter(compile_path(text)(document)), None)


def _parse(text: str) -> list[Step]:
    # `\.` stands for a dot inside a name: .metadata.annotations.example\.com/key
    text = re.sub(r"\.((?:[^.\[\\]|\\.)*\\\.(?:[^.\[\\]|\\.)*)", lambda m: "['" + m[1].replace("\\", "") + "']", text)
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadPath(f"cannot read the path at {text[position:]!r}")
        steps.append(_step(match))
        position = match.end()
    return steps


def _step(match: re.Match[str]) -> Step:
    name = match["field"] or match["name"] or match["dotted"]
    if match["index"] == "*" or name == "*":
        return _all
    if name is not None:
        return lambda values: [v[name] for v in values if isinstance(v, dict) and name in v]
    if match["index"] is not None:
        return _index(int(match["index"]))
    return _filter(match["left"], match["op"] == "==", match["right"].strip("'\""))


def _all(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    return found


def _index(index: int) -> Step:
    return lambda values: [v[index] for v in values if isinstance(v, list) and -len(v) <= index < len(v)]


def _filter(left: str, equal: bool, right: str) -> Step:
    find = compile_path(left)

    def matches(item: Any) -> bool:
        return (any(_text(value) == right for value in find(item))) is equal

    def select(values: list[Any]) -> list[Any]:
        return [item for value in values if isinstance(value, list) for item in value if matches(item)]

    return select


def _text(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
