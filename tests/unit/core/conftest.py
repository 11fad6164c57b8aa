from __future__ import annotations

from collections.abc import Iterator

import pytest
from framework.fake_kube import FakeKube, fake_kube


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake
