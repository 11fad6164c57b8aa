"""The table of controllers: each waits for the live copies that it was built with, for no more and no less."""

from __future__ import annotations

from typing import Any, cast

import pytest
from framework.fake_kube import fake_kube

from virt_controller.caches import Caches
from virt_controller.controllers import CONTROLLERS, Row, Shared
from virt_controller.launcher_pod import TemplateConfig
from virt_core.kube.clusterconfig import ConfigWatcher
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.typelookup import CachedLookup
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock


class Seen:
    """Caches that remember which of them were taken."""

    def __init__(self, caches: Caches) -> None:
        self._caches, self.names = caches, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(self._caches, name)


@pytest.mark.parametrize("row", CONTROLLERS, ids=lambda row: row.name)
def test_a_controller_waits_for_what_it_reads(row: Row) -> None:
    with fake_kube() as kube:
        client, clock = kube.client(), FakeClock()
        caches = Caches(client)
        built, needed = Seen(caches), Seen(caches)
        shared = Shared(
            client,
            clock,
            recorder=EventRecorder(client, "virt-controller", clock=clock),
            caches=cast(Caches, built),
            config=ConfigWatcher(client, "virtpod"),
            types=CachedLookup(client),
            template=TemplateConfig("image", ""),
        )
        row.build(shared, WorkQueue(clock, row.name))
        assert all(cache in caches.all for cache in row.needs(cast(Caches, needed)))
        assert needed.names == built.names


def test_every_cache_is_read_by_some_controller() -> None:
    with fake_kube() as kube:
        caches = Caches(kube.client())
        needed = [cache for row in CONTROLLERS for cache in row.needs(caches)]
        assert all(any(cache is each for each in needed) for cache in caches.all)


def test_names_are_unique() -> None:
    assert len({row.name for row in CONTROLLERS}) == len(CONTROLLERS)
