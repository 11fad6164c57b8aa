"""The manifests that a user is told to apply are ones that we take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.api.reviews import ON_CREATE, TODAY_HOOKS, create

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def machines() -> list[Any]:
    files = sorted(EXAMPLES.glob("*.yaml"))
    found = ((path.name, each) for path in files for each in yaml.safe_load_all(path.read_text()))
    return [pytest.param(each, id=f"{name}-{each['kind']}") for name, each in found if each["kind"] in ON_CREATE]


@pytest.mark.parametrize("manifest", machines())
def test_accepted(manifest: dict[str, Any]) -> None:
    verdict = create(manifest, using=TODAY_HOOKS)
    assert verdict.code == 201, verdict.message
    assert verdict.warnings == []
