"""The cluster's storage, as far as snapshots need it: its classes, live."""

from __future__ import annotations

from collections.abc import Callable

from virt_controller.snapshot.classes import Choice, Disks, choice, statuses
from virt_controller.vmi.keptstate import STATE_INDEX, chosen_for, default_class
from virt_core.apis import names
from virt_core.apis.datavolume import DataVolume, StorageProfile
from virt_core.apis.snapshot import state_volume
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
        self._claims = claims
        self._disks = Disks(claims.get, data_volumes.get, self.choose)

    def choose(self, name: str | None) -> Choice:
        """None: a claim that is still to come and names no class gets the default one."""
        found = default_class(self._classes.list()) if name is None else self._classes.get(name)
        profile = self._profiles.get(found.metadata.name) if found is not None else None
        return choice(found, profile, self._snapshot_classes.list())

    def statuses(self, vm: VirtualMachine) -> list[VolumeSnapshotStatus]:
        """Of its volumes, and of the claim with what firmware and TPM store, if it has one."""
        state, found = self.state_claim(vm), statuses(vm, self._disks)
        if state is None:
            return found
        choice = self.choose(state.spec.storage_class_name or "")
        name = state_volume(vm.metadata.name)
        return [*found, VolumeSnapshotStatus(name=name, enabled=bool(choice.name), reason=choice.why)]

    def state_claim(self, vm: VirtualMachine) -> PersistentVolumeClaim | None:
        key = f"{vm.metadata.namespace}/{names.vmi_id(vm.metadata.name)}"
        return chosen_for(self._claims.by_index(STATE_INDEX, key), vm.metadata.uid)

    def has_classes(self) -> bool:
        return bool(self._snapshot_classes.list())

    def on_change(self, call: Callable[[], None]) -> None:
        """When what can be saved may be more or less than before."""
        for informer in (self._classes, self._snapshot_classes, self._profiles):
            informer.add_handler(lambda _new: call(), lambda _old, _new: call(), lambda _old: call())
