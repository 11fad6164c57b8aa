"""Everything that only the leader does: the live copies of what it watches, and the controllers that work on them."""

from __future__ import annotations

import threading

from virt_controller import controllers
from virt_controller.caches import Caches
from virt_controller.controllers import Shared
from virt_controller.datavolume.uploads import UploadPlace
from virt_controller.export.entrance import Entrance
from virt_controller.install import DefaultKubeVirt
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.migration.figures import MoveFigures, observe
from virt_controller.snapshot.figures import SnapshotFigures
from virt_controller.vm.figures import DiskFigures
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import ConfigWatcher
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.typelookup import CachedLookup
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.supervisor import Supervisor, ThreadBody

NO_ENTRANCE = Entrance()


class Leader:
    def __init__(
        self,
        client: KubeClient,
        template: TemplateConfig,
        workers: int,
        namespace: str,
        entrance: Entrance = NO_ENTRANCE,
    ) -> None:
        clock = SystemClock()
        self._shared = Shared(
            client,
            clock,
            recorder=EventRecorder(client, "virt-controller", clock=clock),
            caches=Caches(client),
            config=ConfigWatcher(client, namespace),
            types=CachedLookup(client),
            template=template,
            entrance=entrance,
        )
        self._controllers = controllers.build(self._shared, workers)
        caches = self._shared.caches
        caches.migrations.add_handler(on_update=observe)
        self.figures = (
            MoveFigures(caches.migrations, caches.vmis),
            SnapshotFigures(caches.snapshots),
            DiskFigures(caches.vms, caches.claims),
        )
        self._bodies: dict[str, ThreadBody] = {"upload-place": UploadPlace(client, entrance, clock).run}

    @property
    def config(self) -> ConfigWatcher:
        """The cluster's configuration, as far as this copy has seen it."""
        return self._shared.config

    def default_kubevirt(self, namespace: str, file: str) -> DefaultKubeVirt:
        shared = self._shared
        return DefaultKubeVirt(shared.client, namespace, file, kubevirts=shared.config.informer, clock=shared.clock)

    def also(self, name: str, body: ThreadBody) -> None:
        """More work for the leader; ends with the lead."""
        self._bodies[name] = body

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop; raises when one of its threads dies."""
        inner = Supervisor("leader", grace_s=9.0)
        for name, body in self._threads():
            inner.thread(name, body)

        def stop_with_lead() -> None:
            stop.wait()
            inner.request_stop()

        threading.Thread(target=stop_with_lead, name="leader-stop", daemon=True).start()
        if inner.run(signals=False) and not stop.is_set():
            raise RuntimeError("a controller ended, see the log")

    def _threads(self) -> list[tuple[str, ThreadBody]]:
        shared = self._shared
        return [
            *self._bodies.items(),
            *((f"informer-{number}", cache.run) for number, cache in enumerate(shared.caches.all)),
            ("types", shared.types.run),
            ("events", shared.recorder.run),
            *((f"controller-{controller.name}", controller.run) for controller in self._controllers),
        ]

    def ready(self) -> str | None:
        synced = self._shared.config.has_synced() and all(cache.has_synced() for cache in self._shared.caches.all)
        return None if synced else "waiting for the first lists"
