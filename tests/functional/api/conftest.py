from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from functional.api.rig import Rig, running


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running(tmp_path) as started:
        yield started
