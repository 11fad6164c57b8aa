"""The VM controller: looks at a VM and its VMI, lets the pure modules decide, acts, and writes the status once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from virt_controller.snapshot.storage import SnapshotStorage
from virt_controller.vm import (
    backoff,
    facts,
    hibernation,
    liveupdate,
    memorydump,
    nics,
    specpatch,
    strategy,
    tracking,
    volumemoves,
)
from virt_controller.vm.actions import Actions
from virt_controller.vm.clonesource import CloneRefusedError
from virt_controller.vm.expand import Expander, ExpansionError, create_reason
from virt_controller.vm.printable import View, Volumes
from virt_controller.vm.reconciliation import Reconciliation
from virt_controller.vm.setup import template_marks
from virt_controller.vm.status import Trouble, updated
from virt_controller.vm.volumes import DataVolumes, NoDataVolumesError, VolumeKeeper, phase_of
from virt_controller.vmi import owned
from virt_core.apis import names
from virt_core.apis.apps import ControllerRevision
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.hibernation import KEPT, UNDER_WAY, digest
from virt_core.apis.nodes import Namespace
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumemoves import MIGRATION
from virt_core.kube.client import KubeClient
from virt_core.kube.configvalues import UNCONFIGURED, ClusterConfig
from virt_core.kube.controller import Result
from virt_core.kube.errors import ApiError, Conflict, NotFound
from virt_core.kube.expectations import TIMEOUT_S, Expectations
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_operations, write_status
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

#: Volumes that are not there yet are looked at when they change; and now and then, lest a change was missed.
VOLUME_RECHECK_S = 60.0
#: VMs by the claims and DataVolumes that they use.
VOLUME_INDEX = "volume"


class VMController:
    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        vms: Informer[VirtualMachine],
        vmis: Informer[VirtualMachineInstance],
        claims: Informer[PersistentVolumeClaim],
        data_volumes: Informer[DataVolume],
        revisions: Informer[ControllerRevision],
        recorder: EventRecorder,
        clock: Clock,
        expand: Expander,
        live_update: Callable[[], bool] = lambda: True,
        storage: SnapshotStorage | None = None,
        namespaces: Informer[Namespace] | None = None,
        config: Callable[[], ClusterConfig] = lambda: UNCONFIGURED,
    ) -> None:
        self._namespaces, self._config = namespaces, config
        self._client, self._queue, self._recorder, self._clock = client, queue, recorder, clock
        self._vms, self._vmis = vms, vmis
        self._types, self._live_update, self._storage = expand, live_update, storage
        self._claims, self._data_volumes = claims, data_volumes
        self._expectations = Expectations(clock)
        self._writes: OwnWrites[VirtualMachine] = OwnWrites()
        self._vmi_writes: OwnWrites[VirtualMachineInstance] = OwnWrites()
        self._actions = Actions(client, revisions, self._expectations, recorder, self._vmi_writes)
        self._volumes = VolumeKeeper(DataVolumes(client, data_volumes), claims.get)
        vms.add_handler(self._vm_changed, lambda _old, new: self._vm_changed(new), self._vm_gone)
        for informer in (claims, data_volumes):
            informer.add_handler(
                self._volume_changed, lambda _old, new: self._volume_changed(new), self._volume_changed
            )
        if storage is not None:
            storage.on_change(self._storage_changed)
        if namespaces is not None:
            namespaces.add_handler(lambda _new: None, self._namespace_changed, lambda _old: None)
        vmis.add_handler(self._vmi_added, lambda _old, new: self._vmi_changed(new), self._vmi_gone)

    def reconcile(self, key: str) -> Result | None:
        cached = self._vms.get(key)
        if cached is None:
            self._expectations.forget(key)
            return None
        if not self._expectations.satisfied(key):
            return Result(TIMEOUT_S)
        vm = self._writes.freshest(cached)
        if is_terminating(vm) and names.FINALIZER_ORPHAN in vm.metadata.finalizers:
            self._write_main(vm, specpatch.without_finalizer(vm))
            return None
        vmi, foreign = self._claim(vm)
        now = self._clock.now()
        vm = replace(vm, status=replace(vm.status, start_failure=backoff.after(vm, vmi, now)))
        return self._work(Reconciliation(vm, vmi, now, foreign), cached)

    def _work(self, state: Reconciliation, cached: VirtualMachine) -> Result | None:
        plan = strategy.plan(state.vm, state.vmi, state.now)
        if is_terminating(state.vm) and state.vmi is None:
            self._write_main(state.vm, specpatch.without_finalizer(state.vm))
            return None
        state.vm = self._write_main(state.vm, specpatch.operations(state.vm, plan.switch_to, state.vmi))
        self._keep_types(state)
        self._dump_memory(state)
        self._hibernate(state)
        self._look_at_volumes(state, plan.start)
        if plan.start:
            self._start(state, plan)
        elif plan.stop and state.vmi is not None:
            self._stop(state, state.vmi)
        elif state.vmi is not None:
            self._drop_gone_cards(state, state.vmi)
            if liveupdate.is_applicable(state.vmi, state.vm.metadata.generation):
                self._follow_spec(state, state.vmi)
        if plan.ask_start:
            state.note(ask_start=True)
        self._write_status(state, self._writes.freshest(cached))
        self._types.forget(state.vm, state.replaced)
        if state.vmi is not None and is_final(state.vmi):
            self._actions.release(state.vmi)
        if state.error is not None:
            raise state.error
        return self._recheck(state, plan)

    @staticmethod
    def _recheck(state: Reconciliation, plan: strategy.Plan) -> Result | None:
        pending = state.volumes.provisioning or state.volumes.unbound or (plan.start and state.vmi is None)
        waits = [plan.wait_s, state.wait_s, VOLUME_RECHECK_S if pending else 0.0]
        due = min((wait for wait in waits if wait), default=0.0)
        return Result(due + 0.05) if due else None

    def _claim(self, vm: VirtualMachine) -> tuple[VirtualMachineInstance | None, bool]:
        """The VM's own VMI, and whether somebody else's has its name."""
        cached = self._vmis.get(key_of(vm))
        if cached is None:
            return None, False
        vmi = self._vmi_writes.freshest(cached)
        if facts.owns(vm, vmi):
            return vmi, False
        if facts.controller_ref(vmi) is None and not is_terminating(vmi) and not is_terminating(vm):
            return self._actions.adopt(vm, vmi), False
        return None, True

    def _keep_types(self, state: Reconciliation) -> None:
        """What an instance type or preference is today counts for the VM from now on."""
        if is_terminating(state.vm):
            return
        try:
            state.vm = self._write_main(state.vm, self._types.written_out(state.vm))
            kept, status = self._types.keep(state.vm), state.vm.status
        except (ApiError, ExpansionError) as error:
            self._trouble(state, create_reason(error), error)
            return
        state.replaced = kept.replaced
        status = replace(
            status,
            instancetype_ref=kept.instancetype_ref or status.instancetype_ref,
            preference_ref=kept.preference_ref or status.preference_ref,
        )
        state.vm = replace(state.vm, status=status)

    def _dump_memory(self, state: Reconciliation) -> None:
        """One step of a dump that was asked for."""
        held = is_terminating(state.vm) or bool(state.vm.status.snapshot_in_progress)
        found = None if held else memorydump.plan(state.vm, state.vmi)
        if found is None:
            return
        request = state.vm.status.memory_dump_request
        if found.noted and request is not None:
            # Before the volume leaves: else a note that is refused would have the whole dump made again.
            self._actions.note_dump(state.vm, request.claim_name, found.noted)
        if found.vmi and state.vmi is not None:
            state.vmi = self._actions.patch(state.vmi, found.vmi)
        vm = self._write_main(state.vm, found.template)
        state.vm = replace(vm, status=replace(vm.status, memory_dump_request=found.request))

    def _hibernate(self, state: Reconciliation) -> None:
        """One step of a machine's state, on its way into a claim or back."""
        held = is_terminating(state.vm) or bool(state.vm.status.snapshot_in_progress)
        found = None if held else hibernation.plan(state.vm, state.vmi, lambda: self._world(state.vm), state.now)
        if found is None:
            return
        if found.claim is not None:
            self._actions.make_claim(found.claim)
        if found.vmi and state.vmi is not None:
            state.vmi = self._actions.patch(state.vmi, found.vmi)
        vm = state.vm
        if found.halt:
            vm = self._write_main(vm, specpatch.switched(vm, names.STRATEGY_HALTED))
        if found.drop:
            self._actions.drop_claim(vm, found.drop)
        state.vm, state.wait_s = replace(vm, status=replace(vm.status, hibernation=found.state)), found.wait_s
        if found.note is not None:
            self._recorder.event(state.vm, *found.note)

    def _world(self, vm: VirtualMachine) -> hibernation.World:
        """Empty while the VM's instance type cannot be had."""
        try:
            spec = self._types.expand(vm).spec
        except (ApiError, ExpansionError) as error:
            log.warning("a VM cannot be compared with its saved state", vm=key_of(vm), error=str(error))
            return hibernation.World()

        def uid(name: str) -> str:
            found = self._claims.get(f"{vm.metadata.namespace}/{name}")
            return found.metadata.uid if found is not None else ""

        return hibernation.World(digest(spec), hibernation.disk_claims(spec, uid))

    def _look_at_volumes(self, state: Reconciliation, starting: bool) -> None:
        try:
            state.volumes = self._volumes.look(state.vm, starting)
        except (ApiError, NoDataVolumesError, CloneRefusedError) as error:
            state.volumes = Volumes(failed=True)
            self._trouble(state, names.REASON_FAILED_CREATE, error)

    def _start(self, state: Reconciliation, plan: strategy.Plan) -> None:
        if state.error is not None or state.volumes.failed or state.volumes.provisioning:
            return
        vm = state.vm
        if volumemoves.lost(vm, state.vmi) or vm.status.restore_in_progress:
            return
        if state.foreign:
            state.note(
                trouble=Trouble(
                    names.REASON_FAILED_CREATE, "there is already a VMI of this name, which does not belong to this VM"
                )
            )
            return
        kept = vm.status.hibernation
        kept = kept if kept is not None and kept.phase in KEPT else None
        if kept is not None and (why := hibernation.misfit(kept, self._world(vm))):
            state.note(trouble=Trouble(names.REASON_STATE_DOES_NOT_FIT, why))
            return
        try:
            # A saved state knows no layers over its disks; they come with the next start.
            begin = tracking.at_start(vm, self._tracking(vm)) if kept is None else None
            expanded = self._types.expand(vm)
            state.vmi = self._actions.start(vm, expanded, receive=plan.receive, resume=kept, tracking=begin)
            state.starting = True
        except (ApiError, ExpansionError) as error:
            self._trouble(state, create_reason(error), error)

    def _stop(self, state: Reconciliation, vmi: VirtualMachineInstance) -> None:
        try:
            self._actions.stop(state.vm, vmi)
            state.stopping = True
        except ApiError as error:
            self._trouble(state, names.REASON_FAILED_DELETE, error)

    def _drop_gone_cards(self, state: Reconciliation, vmi: VirtualMachineInstance) -> None:
        operations = nics.pruned_vmi(vmi) if not is_final(vmi) and not is_terminating(vmi) else []
        if operations:
            state.vmi = self._actions.patch(vmi, operations)

    def _follow_spec(self, state: Reconciliation, vmi: VirtualMachineInstance) -> None:
        """The spec changed under a running VMI."""
        started = self._actions.started_spec(vmi)
        if started is None:
            return
        try:
            before = self._types.expand(replace(state.vm, spec=started)).spec
            after = self._types.expand(state.vm).spec
        except ExpansionError as error:
            self._trouble(state, "FailedUpdateError", error)
            return
        relabelled = template_marks(started) != template_marks(state.vm.spec)
        live, strategy_ = self._live_update(), state.vm.spec.update_volumes_strategy
        volumes = volumemoves.plan(
            volumemoves.Wish(
                strategy_,
                after,
                vmi,
                self._storage_of(state.vm),
                state.now,
                live,
                held=bool(state.vm.status.snapshot_in_progress) or _is_being_saved(state.vm),
            )
        )
        update = liveupdate.update(
            liveupdate.Change(
                before,
                after,
                vmi,
                state.vm.metadata.generation,
                live,
                relabelled,
                copies=strategy_ == MIGRATION,
                volumes=volumes,
            )
        )
        state.note(restart_required=update.message)
        if update.operations:
            state.vmi = self._actions.patch(vmi, update.operations)

    def _storage_of(self, vm: VirtualMachine) -> volumemoves.Storage:
        space = vm.metadata.namespace

        def phase(name: str) -> str | None:
            found = self._data_volumes.get(f"{space}/{name}")
            return phase_of(found) if found is not None else None

        def user(claim: str) -> str:
            machines = (each for each in self._vms.by_index(VOLUME_INDEX, f"{space}/{claim}"))
            if (other := next((each for each in machines if each.metadata.uid != vm.metadata.uid), None)) is not None:
                return f"VM {other.metadata.name}"
            for vmi in self._vmis.list():
                foreign = vmi.metadata.namespace == space and not facts.owns(vm, vmi) and not is_final(vmi)
                if foreign and claim in owned.claims(vmi):
                    return f"VMI {vmi.metadata.name}"
            return ""

        return volumemoves.Storage(lambda name: self._claims.get(f"{space}/{name}"), phase, user)

    def _tracking(self, vm: VirtualMachine) -> tracking.Wish:
        space = self._namespaces.get(vm.metadata.namespace) if self._namespaces is not None else None
        return tracking.wish(vm, space.metadata.labels if space is not None else {}, self._config())

    def _trouble(self, state: Reconciliation, reason: str, error: Exception) -> None:
        if isinstance(error, Conflict):
            raise error
        state.error = error
        state.note(trouble=Trouble(reason, str(error)))
        self._recorder.event(state.vm, names.EVENT_WARNING, reason, str(error))

    def _write_main(self, vm: VirtualMachine, operations: list[dict[str, Any]]) -> VirtualMachine:
        """Metadata and spec. The status that we have in hand stays, whatever the answer says."""
        try:
            written = write_operations(self._client, vm, operations)
        except NotFound:
            return vm
        if written is None:
            return vm
        self._writes.remember(written)
        return replace(written, status=vm.status)

    def _write_status(self, state: Reconciliation, stored: VirtualMachine) -> None:
        """`stored` is the VM as the API server has it, so that the patch carries only what changed."""
        view = View(state.vm, state.vmi, state.starting, state.stopping, state.volumes)
        status = updated(view, state.outcome, state.now)
        if self._storage is not None:
            status = replace(status, volume_snapshot_statuses=self._storage.statuses(state.vm))
        tracked = tracking.state(state.vm, state.vmi, self._tracking(state.vm))
        wanted = replace(stored, status=replace(status, changed_block_tracking=tracked))
        try:
            written = write_status(self._client, stored, wanted)
        except NotFound:
            return  # Deleted for good meanwhile.
        if written is not None:
            self._writes.remember(written)

    def _volume_changed(self, volume: PersistentVolumeClaim | DataVolume) -> None:
        for vm in self._vms.by_index(VOLUME_INDEX, key_of(volume)):
            self._queue.add(key_of(vm))

    def _storage_changed(self) -> None:
        for vm in self._vms.list():
            self._queue.add(key_of(vm))

    def _namespace_changed(self, old: Namespace, new: Namespace) -> None:
        """Its labels may choose what is tracked."""
        if old.metadata.labels != new.metadata.labels:
            for vm in self._vms.list():
                if vm.metadata.namespace == new.metadata.name:
                    self._queue.add(key_of(vm))

    def _vm_changed(self, vm: VirtualMachine) -> None:
        self._queue.add(key_of(vm))

    def _vm_gone(self, vm: VirtualMachine) -> None:
        self._writes.forget(vm.metadata.uid)
        self._queue.add(key_of(vm))

    def _vmi_added(self, vmi: VirtualMachineInstance) -> None:
        if facts.of_a_vm(vmi):
            self._expectations.creation_observed(key_of(vmi))
        self._vmi_changed(vmi)

    def _vmi_changed(self, vmi: VirtualMachineInstance) -> None:
        if is_terminating(vmi):
            self._expectations.deletion_observed(key_of(vmi), vmi.metadata.uid)
        self._queue.add(key_of(vmi))

    def _vmi_gone(self, vmi: VirtualMachineInstance) -> None:
        self._vmi_writes.forget(vmi.metadata.uid)
        self._expectations.deletion_observed(key_of(vmi), vmi.metadata.uid)
        self._queue.add(key_of(vmi))


def _is_being_saved(vm: VirtualMachine) -> bool:
    return vm.status.hibernation is not None and vm.status.hibernation.phase in UNDER_WAY
