"""The cluster's storage, as far as snapshots need it: its classes, live."""

from __future__ import annotations

from collections.abc import Callable

from virt_controller.snapshot.classes import Choice, Disks, choice, statuses
from virt_controller.vmi.keptstate import default_class
from virt_core.apis.datavolume import DataVolume, StorageProfile
from virt_core.apis.storage import PersistentVolumeClaim, StorageClass
from virt_core.apis.vm import VirtualMachine, VolumeSnapshotStatus
from virt_core.apis.volumesnapshots import VolumeSnapshotClass
from virt_core.kube.informer import Informer


class SnapshotStorage:
    def __init__(
        self,
        classes: Informer[StorageClass],
        snapshot_classes: Informer[VolumeSnapshotClass],
        profiles: Informer[StorageProfile],
        claims: Informer[PersistentVolumeClaim],
        data_volumes: Informer[DataVolume],
    ) -> None:
        self._classes, self._snapshot_classes, self._profiles = classes, snapshot_classes, profiles
        self._disks = Disks(claims.get, data_volumes.get, self.choose)

    def choose(self, name: str | None) -> Choice:
        """None: a claim that is still to come and names no class gets the default one."""
        found = default_class(self._classes.list()) if name is None else self._classes.get(name)
        profile = self._profiles.get(found.metadata.name) if found is not None else None
        return choice(found, profile, self._snapshot_classes.list())

    def statuses(self, vm: VirtualMachine) -> list[VolumeSnapshotStatus]:
        return statuses(vm, self._disks)

    def has_classes(self) -> bool:
        return bool(self._snapshot_classes.list())

    def on_change(self, call: Callable[[], None]) -> None:
        """When what can be saved may be more or less than before."""
        for informer in (self._classes, self._snapshot_classes, self._profiles):
            informer.add_handler(lambda _new: call(), lambda _old, _new: call(), lambda _old: call())
