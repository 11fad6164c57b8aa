from __future__ import annotations

import pytest
from framework.instancetypes import Objects


@pytest.fixture
def objects() -> Objects:
    return Objects()
