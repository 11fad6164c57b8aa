"""Expressions in the Common Expression Language: match conditions of webhooks and validation rules of CRDs.

The library is a compiled extension; its Python package also imports a command line with everything that takes, so the
extension is loaded by itself, when the first expression comes. Functions that only Kubernetes adds to the language
(quantity, isSorted and the like) are not known: an expression that uses them is refused when it is written.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

_BUILT_IN = frozenset(
    (
        "size",
        "has",
        "all",
        "exists",
        "exists_one",
        "map",
        "filter",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "bool",
        "duration",
        "timestamp",
        "type",
        "dyn",
        "min",
        "max",
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
    )
)


class BadExpression(ValueError):
    """The text is no expression that we can evaluate."""


class Failed(Exception):
    """The expression cannot be evaluated for these values."""


class Expression:
    """A compiled expression that answers yes or no."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._program = _library().compile(text)
        except ValueError as error:
            raise BadExpression(f"compilation failed: {error}") from None
        # Operators are functions with underscores and punctuation in their names.
        unknown = {name for name in self._program.functions() if name.isidentifier()} - _BUILT_IN
        unknown = {name for name in unknown if not name.startswith("_")}
        if unknown:
            raise BadExpression(f"compilation failed: undeclared reference to '{min(unknown)}'")
        if not self._program.variables():
            self._check_constant()

    def _check_constant(self) -> None:
        try:
            if isinstance(self._program.execute({}), bool):
                return
        except Exception as error:
            raise BadExpression(f"compilation failed: {error}") from None
        raise BadExpression("must evaluate to bool")

    def uses(self, variable: str) -> bool:
        return variable in self._program.variables()

    def holds(self, values: Mapping[str, Any]) -> bool:
        try:
            result = self._program.execute(dict(values))
        except KeyError as error:
            raise Failed(f"no such key: {error.args[0]}") from None
        except Exception as error:
            raise Failed(str(error)) from None
        if not isinstance(result, bool):
            raise Failed("the expression does not evaluate to bool")
        return result


@lru_cache(maxsize=512)
def compile_expression(text: str) -> Expression:
    """Raises BadExpression."""
    return Expression(text)


@cache
def _library() -> ModuleType:
    package = importlib.util.find_spec("cel")
    if package is None or not package.submodule_search_locations:
        raise BadExpression("this installation cannot evaluate expressions: install the extra `local`")
    place = Path(package.submodule_search_locations[0])
    extension = next(place.glob("cel.*.so"))
    spec = importlib.util.spec_from_file_location("cel.cel", extension)
    if spec is None or spec.loader is None:
        raise BadExpression(f"this installation cannot evaluate expressions: {extension} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
