"""virt-local's API server answers as the real kube-apiserver did: every case against the recorded transcripts.

The recordings are made and compared on a real control plane by tests/kubernetes/test_contract.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract import golden
from contract.backends import Backends
from contract.engine import Engine
from contract.local import virt_local
from contract.rig import all_cases, converse, rig
from contract.table import Case

RECORDED = golden.load()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Backends]]:
    directory: Path = tmp_path_factory.mktemp("contract")
    with virt_local(directory / "server") as engine, rig(engine, directory / "backends") as backends:
        yield engine, backends


@pytest.mark.parametrize("case", all_cases().values(), ids=lambda case: case.id)
def test_virt_local_answers_alike(case: Case, local: tuple[Engine, Backends]) -> None:
    assert case.id in RECORDED, "this case was never recorded: see tests/contract/__main__.py"
    difference = golden.difference(RECORDED[case.id], converse(case, *local))
    assert not difference, f"the answers differ from those of kube-apiserver:\n{difference}"


def test_every_recording_has_its_case() -> None:
    assert set(RECORDED) == set(all_cases())
