"""The command line from outside, against a fake API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from framework.fake_kube import FakeKube, fake_kube

from virtctl.main import cli

Run = Callable[..., Result]


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


@pytest.fixture
def run(kube: FakeKube, tmp_path: Path) -> Run:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{kube.port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(cli, ["--kubeconfig", str(tmp_path / "config"), *args])

    return invoke
