"""The controller of exports: looks at one, its source, its Pod and its Service, lets `decide` decide, and does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from virt_controller.export import model
from virt_controller.export.certificate import USED, issue
from virt_controller.export.decide import decide, expiry
from virt_controller.export.links import Way, internal_way
from virt_controller.export.manifests import documents
from virt_controller.export.model import Decision, Source, World
from virt_controller.export.render import (
    certificate_secret,
    exporter_pod,
    exporter_service,
    token_name,
    token_secret,
)
from virt_controller.export.snapshots import snapshot_source
from virt_controller.export.sources import Sight, claim_source, vm_source
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.notes import Note
from virt_controller.vm.expand import ExpansionError
from virt_controller.vmi.keptstate import STATE_INDEX
from virt_controller.vmi.surroundings import VOLUME_INDEX
from virt_core.apis import exportplan, names
from virt_core.apis.base import encode
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.exportplan import Manifests
from virt_core.apis.facts import is_terminating
from virt_core.apis.pods import Pod
from virt_core.apis.services import Service
from virt_core.apis.snapshot import VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.controller import Result
from virt_core.kube.errors import AlreadyExists, Forbidden, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import op, pointer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_operations, write_status
from virt_core.runtime.clock import Clock
from virt_core.runtime.times import rfc3339

NAMESPACE_INDEX = "namespace"
Expand = Callable[[VirtualMachine], VirtualMachine]
#: How exports are reached from outside; None: they are not.
Outside = Callable[[str, str], Way | None]


def namespace_indexer(export: VirtualMachineExport) -> list[str]:
    return [export.metadata.namespace]


class ExportController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        exports: Informer[VirtualMachineExport],
        pods: Informer[Pod],
        services: Informer[Service],
        claims: Informer[PersistentVolumeClaim],
        data_volumes: Informer[DataVolume],
        vms: Informer[VirtualMachine],
        vmis: Informer[VirtualMachineInstance],
        recorder: EventRecorder,
        clock: Clock,
        template: TemplateConfig,
        expand: Expand,
        outside: Outside = lambda _namespace, _name: None,
    ) -> None:
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._exports, self._pods, self._services, self._claims = exports, pods, services, claims
        self._template, self._expand, self._outside = template, expand, outside
        self._writes: OwnWrites[VirtualMachineExport] = OwnWrites()
        self._sight = Sight(
            claim=claims.get,
            data_volume=data_volumes.get,
            vm=vms.get,
            vmi=vmis.get,
            machines=lambda key: vmis.by_index(VOLUME_INDEX, key),
            pods=lambda namespace: client.list(Pod, namespace).items,
            kept=self._kept,
        )
        exports.add_handler(self._changed, lambda _old, new: self._changed(new), self._gone)
        for owned in (pods, services):
            owned.add_handler(self._owned, lambda _old, new: self._owned(new), self._owned)
        for near in (claims, data_volumes, vms, vmis):
            near.add_handler(self._near, lambda _old, new: self._near(new), self._near)

    def reconcile(self, key: str) -> Result | None:
        cached = self._exports.get(key)
        if cached is None or is_terminating(cached):
            return None
        export = self._writes.freshest(cached)
        world = self._look(export)
        way = self._outside(export.metadata.namespace, export.metadata.name)
        decision = decide(export, world, self._clock.now(), way)
        self._act(export, world, decision, way)
        return Result(decision.recheck_s) if decision.recheck_s is not None else None

    # What there is

    def _look(self, export: VirtualMachineExport) -> World:
        namespace, name = export.metadata.namespace, export.metadata.name
        pod = self._pods.get(f"{namespace}/{exportplan.pod_name(name)}")
        service = self._services.get(f"{namespace}/{exportplan.service_name(name)}")
        taken = [f"{each.kind} {each.metadata.name}" for each in (pod, service) if each and not _owns(export, each)]
        return World(self._source(export), pod, service, taken[0] if taken else "")

    def _source(self, export: VirtualMachineExport) -> Source:
        source, namespace = export.spec.source, export.metadata.namespace
        if source.kind == "PersistentVolumeClaim":
            return claim_source(namespace, source.name, self._sight)
        if source.kind == "VirtualMachine":
            return vm_source(namespace, source.name, self._sight)
        if source.kind == "VirtualMachineSnapshot":
            return snapshot_source(export, *self._snapshot(namespace, source.name), self._sight)
        words = f"the export of a {source.kind} is not built yet"
        return Source(reason="Unknown", message=words, empty=True)

    def _snapshot(
        self, namespace: str, name: str
    ) -> tuple[VirtualMachineSnapshot | None, VirtualMachineSnapshotContent | None]:
        try:
            snapshot = self._client.get(VirtualMachineSnapshot, name, namespace)
            content = snapshot.status.virtual_machine_snapshot_content_name
            if not content:
                return snapshot, None
            return snapshot, self._client.get(VirtualMachineSnapshotContent, content, namespace)
        except NotFound:
            return None, None

    def _kept(self, vm: VirtualMachine) -> list[PersistentVolumeClaim]:
        """Made for it, or put back for it; not that of a former VM of its name."""
        label = f"{vm.metadata.namespace}/{names.vmi_id(vm.metadata.name)}"
        found = self._claims.by_index(STATE_INDEX, label)
        return [
            each
            for each in found
            if names.LABEL_MIGRATION_NAME not in each.metadata.labels
            and all(ref.uid == vm.metadata.uid for ref in each.metadata.owner_references)
        ]

    # What it does

    def _act(self, export: VirtualMachineExport, world: World, decision: Decision, way: Way | None) -> None:
        """What is needed first comes first; the status says what is."""
        source = world.source
        if decision.create_claims:
            for claim in source.wanted:
                self._create(claim)
        if decision.create_service and self._create(exporter_service(export)):
            self._note(export, Note(model.SERVICE_CREATED, f"created Service {decision.status.service_name}"))
        if decision.create_token and self._create(token_secret(export)):
            self._note(export, Note(model.SECRET_CREATED, f"created Secret {token_name(export)} with the token"))
        made = decision.create_pod and self._create_pod(export, source)
        if decision.certify and world.pod is not None:
            self._certify(export, world.pod, source, way)
        if decision.delete_pod and world.pod is not None:
            self._delete(world.pod)
        for note in decision.notes:
            if made or not decision.create_pod:
                self._note(export, note)
        self._write(export, decision)
        if decision.delete_export:
            self._expire(export)

    def _create_pod(self, export: VirtualMachineExport, source: Source) -> bool:
        """Raises ApiError; a quota that is full is told to the user."""
        try:
            return self._create(self._pod(export, source))
        except Forbidden as error:
            self._note(export, Note(model.CREATE_FAILED, f"no exporter Pod: {error}", names.EVENT_WARNING))
            raise

    def _pod(self, export: VirtualMachineExport, source: Source) -> Pod:
        deadline = min(self._clock.now() + USED, expiry(export))
        return exporter_pod(export, source.volumes, source.vm, self._template, rfc3339(deadline))

    def _certify(self, export: VirtualMachineExport, pod: Pod, source: Source, way: Way | None) -> None:
        """The Secret for which the Pod waits. One that is there although the Pod does not say so is of an attempt that
        broke off: its certificate is nobody's, so Pod and Secret go."""
        namespace, name = export.metadata.namespace, export.metadata.name
        issued = issue(namespace, name, self._clock.now())
        files = dict(issued.files)
        if source.vm is not None:
            inside = internal_way(namespace, name, issued.authority)
            files[exportplan.MANIFESTS_FILE] = self._manifests(name, source.vm, source, inside, way)
        if not self._create(certificate_secret(pod, files)):
            self._delete(pod)
            return
        annotation = pointer("metadata", "annotations", model.KEY_CERTIFICATE)
        try:
            write_operations(self._client, pod, [op.add(annotation, issued.authority)])
        except NotFound:
            return

    def _manifests(self, export: str, vm: VirtualMachine, source: Source, inside: Way, outside: Way | None) -> str:
        try:
            expanded = self._expand(vm)
        except ExpansionError:
            expanded = vm  # Whoever makes it anew is told what is missing, as here.
        found = Manifests(internal=documents(export, expanded, source.volumes, inside))
        if outside is not None:
            found.external = documents(export, expanded, source.volumes, outside)
        return encode(found).decode()

    def _create(self, made: KubeObject) -> bool:
        """False: there is one of that name."""
        anything: Any = made
        try:
            self._client.create(anything)
        except AlreadyExists:
            return False
        return True

    def _delete(self, pod: Pod) -> None:
        try:
            self._client.delete(Pod, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        except NotFound:
            return

    def _expire(self, export: VirtualMachineExport) -> None:
        meta = export.metadata
        try:
            self._client.delete(VirtualMachineExport, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return

    def _write(self, export: VirtualMachineExport, decision: Decision) -> None:
        try:
            written = write_status(self._client, export, replace(export, status=decision.status))
        except NotFound:
            return
        if written is not None:
            self._writes.remember(written)

    def _note(self, export: VirtualMachineExport, note: Note) -> None:
        self._recorder.event(export, note.type, note.reason, note.message)

    # What wakes it

    def _changed(self, export: VirtualMachineExport) -> None:
        self._queue.add(key_of(export))

    def _gone(self, export: VirtualMachineExport) -> None:
        self._writes.forget(export.metadata.uid)

    def _owned(self, obj: Pod | Service) -> None:
        for ref in obj.metadata.owner_references:
            if ref.kind == "VirtualMachineExport":
                self._queue.add(f"{obj.metadata.namespace}/{ref.name}")

    def _near(self, obj: KubeObject) -> None:
        """Exports are few: those of the namespace look for themselves whether it concerns them."""
        for export in self._exports.by_index(NAMESPACE_INDEX, obj.metadata.namespace):
            self._queue.add(key_of(export))


def _owns(export: VirtualMachineExport, obj: Pod | Service) -> bool:
    return any(ref.uid == export.metadata.uid for ref in obj.metadata.owner_references)
