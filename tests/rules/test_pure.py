"""A module that calls itself pure is held to it by the import contract of pyproject.toml."""

from __future__ import annotations

import ast
import re
import tomllib

from framework.sources import ROOT, Source, product

CONTRACT = "Pure modules act on nothing"


def says_pure(source: Source) -> bool:
    return re.search(r"\bPure\b", ast.get_docstring(source.tree) or "") is not None


def _contract() -> dict[str, list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (found,) = [contract for contract in settings["contracts"] if contract["name"] == CONTRACT]
    return found


def _covers(held: list[str], module: str) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in held)


def test_every_module_that_says_pure_is_held_to_it() -> None:
    held = _contract()["source_modules"]
    assert [source.module for source in product() if says_pure(source) and not _covers(held, source.module)] == []


def test_the_contract_names_modules_that_exist() -> None:
    modules = {source.module for source in product()}
    assert [module for module in _contract()["source_modules"] if module not in modules] == []


def test_the_contract_forbids_what_acts() -> None:
    assert {"subprocess", "grpc", "threading", "socket"} <= set(_contract()["forbidden_modules"])


def test_the_rule_sees_the_word() -> None:
    def source(text: str) -> Source:
        return Source("virt_x", ROOT / "x.py", ast.parse(text))

    assert says_pure(source('"""What comes next. Pure."""'))
    assert not says_pure(source('"""Lets the pure modules decide."""'))
