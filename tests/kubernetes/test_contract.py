"""The two engines side by side: each case runs against this cluster and against virt-local, and must read the same.

The recorded transcripts, by which `make test` guards virt-local without a cluster, are checked here as well: when
they are out of date, record them anew (`python -m contract record`, with PYTHONPATH=tests).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from contract import golden
from contract.backends import Backends
from contract.engine import Engine, from_kubeconfig, reachable_address
from contract.local import virt_local
from contract.rig import all_cases, converse, rig
from contract.table import Case, NotYet

from tests.cluster import Cluster

Side = tuple[Engine, Backends]
RECORDED = golden.load()


@pytest.fixture(scope="module")
def sides(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    directory: Path = tmp_path_factory.mktemp("contract")
    config = Path(cluster.kubeconfig)
    real = from_kubeconfig(config, reachable_address(config))
    with ExitStack() as running:
        ours = running.enter_context(virt_local(directory / "server"))
        theirs = running.enter_context(rig(real, directory / "real"))
        yield (real, theirs), (ours, running.enter_context(rig(ours, directory / "local")))
    real.close()


@pytest.mark.parametrize("case", all_cases().values(), ids=lambda case: case.id)
def test_both_engines_answer_alike(case: Case, sides: tuple[Side, Side]) -> None:
    (real, theirs), (ours, own) = sides
    try:
        told = converse(case, real, theirs)
    except NotYet as reason:
        pytest.skip(str(reason))
    difference = golden.difference(told, converse(case, ours, own))
    assert not difference, f"virt-local's answers differ from those of kube-apiserver:\n{difference}"
    stale = golden.difference(told, RECORDED.get(case.id))
    assert not stale, f"the recording differs from what kube-apiserver says now:\n{stale}"
