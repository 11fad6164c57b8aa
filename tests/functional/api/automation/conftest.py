from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from functional.api.automation.rig import AutomationRig, running


@pytest.fixture
def auto(tmp_path: Path) -> Iterator[AutomationRig]:
    with running(tmp_path) as rig:
        yield rig
