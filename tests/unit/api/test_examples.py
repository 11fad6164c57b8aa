"""The manifests that a user is told to apply are ones that we take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.api.reviews import ON_CREATE, create, hooks

from virt_core.apis.support.table import TODAY
from virt_core.kube.configvalues import ClusterConfig

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def machines() -> list[Any]:
    files = sorted(EXAMPLES.glob("*.yaml"))
    texts = {path.name: path.read_text() for path in files}
    found = ((name, each) for name, text in texts.items() for each in yaml.safe_load_all(text))
    return [
        pytest.param(
            each, frozenset(re.findall(r"[Nn]eeds the feature gate (\w+)", texts[name])), id=f"{name}-{each['kind']}"
        )
        for name, each in found
        if each["kind"] in ON_CREATE
    ]


@pytest.mark.parametrize(("manifest", "gates"), machines())
def test_accepted(manifest: dict[str, Any], gates: frozenset[str]) -> None:
    """With the gates that it names, and no other."""
    config = ClusterConfig(default_architecture="amd64", feature_gates=gates)
    verdict = create(manifest, using=hooks(config=config, support=TODAY))
    assert verdict.code == 201, verdict.message
    assert verdict.warnings == []
