"""The claim that keeps what a machine's firmware and TPM store: found, made, and removed when nothing is kept any more.

It belongs to the VM, so it outlives each of its VMIs and goes with it; a VMI without a VM has its own. What is in it is
all there is of it: a claim that exists is used as it is, and never made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from virt_controller.launcher_pod.render import controller_reference
from virt_controller.vmi.owned import KeptState, owner_vm
from virt_controller.vmi.pods import Trouble
from virt_core.apis import names
from virt_core.apis.datavolume import StorageProfile
from virt_core.apis.facts import is_terminating
from virt_core.apis.keptstate import keeps_anything, tracks_blocks
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.podvolumes import PersistentVolumeClaimSpec, VolumeResourceRequirements
from virt_core.apis.storage import PersistentVolumeClaim, StorageClass
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.runtime.times import parse_rfc3339

#: Claims with the state of a machine, by the namespace and the label.
STATE_INDEX = "kept-state"
SIZE = "10Mi"
#: Beside it, what says which blocks of the disks have changed.
SIZE_WITH_BLOCKS = "522Mi"
#: A claim that was just made is bound in a moment; only one that is not is worth a word.
QUIET_S = 5.0

_GENERATED = "persistent-state-for-"


class NoClassError(Exception):
    """There is no storage class for the claim. The message says which is looked for."""


def label_of(vmi: VirtualMachineInstance) -> str:
    return names.vmi_id(vmi.metadata.name)


def state_indexer(claim: PersistentVolumeClaim) -> list[str]:
    name = claim.metadata.labels.get(names.LABEL_KEPT_STATE)
    return [f"{claim.metadata.namespace}/{name}"] if name else []


def owner_of(vmi: VirtualMachineInstance) -> OwnerReference:
    return owner_vm(vmi) or controller_reference(vmi)


def chosen(claims: Iterable[PersistentVolumeClaim], vmi: VirtualMachineInstance) -> PersistentVolumeClaim | None:
    """The machine's own."""
    return chosen_for(claims, owner_of(vmi).uid)


def chosen_for(claims: Iterable[PersistentVolumeClaim], uid: str) -> PersistentVolumeClaim | None:
    """Made for its owner, or for nobody (somebody put it back). One of a former VM of that name is on its way out, and
    one that a migration fills is not yet whole."""
    usable = [
        claim
        for claim in claims
        if not is_terminating(claim)
        and names.LABEL_MIGRATION_NAME not in claim.metadata.labels
        and _belongs(claim, uid)
    ]
    return min(usable, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name), default=None)


def _belongs(claim: PersistentVolumeClaim, uid: str) -> bool:
    owners = [ref.uid for ref in claim.metadata.owner_references]
    return not owners or uid in owners


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The one for machines, else the cluster's; of several the youngest, as Kubernetes does it."""
    ordered = sorted(classes, key=lambda each: each.metadata.name)
    ordered.sort(key=lambda each: each.metadata.creation_timestamp or "", reverse=True)
    for mark in (names.ANNOTATION_DEFAULT_VIRT_CLASS, names.ANNOTATION_DEFAULT_CLASS):
        for each in ordered:
            if each.metadata.annotations.get(mark) == "true":
                return each
    return None


def access_mode(profile: StorageProfile | None, *, named: bool) -> str:
    """From all nodes where the class can do that, so that the machine can move. Who names a class in the configuration
    says that it can."""
    sets = profile.status.claim_property_sets if profile is not None else []
    modes = {
        mode
        for each in sets
        if (each.volume_mode or names.VOLUME_MODE_FILESYSTEM) == names.VOLUME_MODE_FILESYSTEM
        for mode in each.access_modes
    }
    for mode in (names.ACCESS_ALL_NODES, names.ACCESS_ONE_NODE):
        if mode in modes:
            return mode
    return names.ACCESS_ALL_NODES if named else names.ACCESS_ONE_NODE


def make_claim(vmi: VirtualMachineInstance, storage_class: str, mode: str) -> PersistentVolumeClaim:
    size = SIZE_WITH_BLOCKS if tracks_blocks(vmi) else SIZE
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            generate_name=f"{_GENERATED}{vmi.metadata.name}-",
            namespace=vmi.metadata.namespace,
            labels={names.LABEL_KEPT_STATE: label_of(vmi), names.LABEL_APPLY_STORAGE_PROFILE: "true"},
            owner_references=[owner_of(vmi)],
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=[mode],
            resources=VolumeResourceRequirements(requests={"storage": size}),
            storage_class_name=storage_class,
            volume_mode=names.VOLUME_MODE_FILESYSTEM,
        ),
    )


class StateKeeper:
    def __init__(
        self,
        client: KubeClient,
        claims: Informer[PersistentVolumeClaim] | None,
        config: Callable[[], ClusterConfig],
        now: Callable[[], datetime],
    ) -> None:
        self._client, self._claims, self._config, self._now = client, claims, config, now
        #: Made and not seen yet, by the UIDs of their VMIs.
        self._made: dict[str, PersistentVolumeClaim] = {}

    def look(self, vmi: VirtualMachineInstance) -> KeptState:
        """Raises ApiError."""
        if self._claims is None:
            return KeptState()
        known = self._claims.by_index(STATE_INDEX, f"{vmi.metadata.namespace}/{label_of(vmi)}")
        if not keeps_anything(vmi):
            return KeptState(unused=self._unused(known, vmi))
        made = self._made.get(vmi.metadata.uid)
        claim = chosen(known, vmi) or made
        if made is not None and claim is not made:
            self.forget(vmi.metadata.uid)
        if claim is None:
            return KeptState(missing=True)
        return KeptState(claim=claim, trouble=self._trouble(claim), quiet_s=self._quiet_s(claim))

    def make(self, vmi: VirtualMachineInstance) -> None:
        """Raises NoClassError, ApiError. Asks the API server once more: a cache may not have seen the claim yet."""
        selector = f"{names.LABEL_KEPT_STATE}={label_of(vmi)}"
        there = self._client.list(PersistentVolumeClaim, vmi.metadata.namespace, selector).items
        claim = chosen(there, vmi)
        if claim is None:
            name, mode = self._class()
            claim = self._client.create(make_claim(vmi, name, mode))
        self._made[vmi.metadata.uid] = claim

    def remove(self, claim: PersistentVolumeClaim) -> None:
        meta = claim.metadata
        try:
            self._client.delete(PersistentVolumeClaim, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    def forget(self, uid: str) -> None:
        self._made.pop(uid, None)

    def _quiet_s(self, claim: PersistentVolumeClaim) -> float:
        created = claim.metadata.creation_timestamp
        age_s = (self._now() - parse_rfc3339(created)).total_seconds() if created else QUIET_S
        return min(max(QUIET_S - age_s, 0.0), QUIET_S)  # Clocks differ.

    def _unused(
        self, known: Iterable[PersistentVolumeClaim], vmi: VirtualMachineInstance
    ) -> tuple[PersistentVolumeClaim, ...]:
        """Only what was made for this very VM."""
        uid = owner_of(vmi).uid
        return tuple(
            claim
            for claim in known
            if not is_terminating(claim) and any(ref.uid == uid for ref in claim.metadata.owner_references)
        )

    def _class(self) -> tuple[str, str]:
        wanted = self._config().vm_state_storage_class
        found = self._named(wanted) if wanted else default_class(self._client.list(StorageClass).items)
        if found is None and wanted:
            raise NoClassError(
                f"there is no StorageClass {wanted!r}, which vmStateStorageClass of the KubeVirt object names"
            )
        if found is None:
            raise NoClassError(
                "there is no default StorageClass, and vmStateStorageClass of the KubeVirt object names none"
            )
        name = found.metadata.name
        return name, access_mode(self._profile(name), named=bool(wanted))

    def _named(self, name: str) -> StorageClass | None:
        try:
            return self._client.get(StorageClass, name)
        except NotFound:
            return None

    def _profile(self, name: str) -> StorageProfile | None:
        try:
            return self._client.get(StorageProfile, name)
        except NotFound:
            return None

    def _trouble(self, claim: PersistentVolumeClaim) -> Trouble | None:
        """One that is bound for its first user only may be used as it is."""
        what, name = (
            f'the claim "{claim.metadata.name}" for what firmware and TPM store',
            claim.spec.storage_class_name or "",
        )
        if claim.status.phase == "Bound":
            return None
        if claim.status.phase == "Lost":
            return Trouble(names.REASON_STATE_LOST, f"{what} has lost its volume")
        found = self._named(name) if name else None
        if found is None:
            why = f"there is no StorageClass {name!r}" if name else "it names no StorageClass"
            return Trouble(names.REASON_STATE_NOT_READY, f"{what} is not bound: {why}")
        if found.volume_binding_mode == names.BINDING_FIRST_CONSUMER:
            return None
        why = f"StorageClass {name!r} ({found.provisioner}) has not given it a volume"
        return Trouble(names.REASON_STATE_NOT_READY, f"{what} is not bound: {why}; the claim's Events may say why")
