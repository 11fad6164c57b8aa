"""The mutating webhook of VMIs: defaults on create; nobody but us changes a status on update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from virt_api.admission.causes import Refused
from virt_api.admission.cluster import Cluster
from virt_api.admission.defaults import apply_defaults
from virt_api.admission.objects import (
    annotations_of,
    document_of,
    inside,
    metadata_of,
    namespace_of,
    read_spec,
    user_of,
    with_finalizer,
)
from virt_api.admission.presets import merge_presets
from virt_api.admission.review import PatchOps
from virt_core.apis import names
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.base import to_plain
from virt_core.apis.domain import Firmware
from virt_core.apis.handoffs import ACCEPTED
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import (
    CPUTopology,
    Handoff,
    MemoryStatus,
    VirtualMachineInstancePhaseTransitionTimestamp,
    VirtualMachineInstanceStatus,
)
from virt_core.kube.configvalues import ClusterConfig
from virt_core.runtime.clock import Clock
from virt_core.runtime.times import rfc3339, rfc3339_micro

PRESET_ANNOTATION = "virtualmachinepreset.kubevirt.io/"
_PCI_TOPOLOGY_ARCHITECTURES = frozenset({"", "amd64", "arm64"})


class VMIMutator:
    def __init__(
        self, config: Callable[[], ClusterConfig], clock: Clock, trusted_users: frozenset[str], cluster: Cluster
    ) -> None:
        self._config, self._clock, self._trusted, self._cluster = config, clock, trusted_users, cluster

    def __call__(self, request: AdmissionRequest) -> PatchOps:
        """The patch. Raises Refused when the object is not even well formed."""
        if request.operation == "CREATE":
            document = document_of(request.object)
            return self.create(document, namespace_of(request, document), user_of(request))
        return self.update(document_of(request.object), document_of(request.old_object), user_of(request))

    def create(self, document: dict[str, Any], namespace: str, user: str = "") -> PatchOps:
        spec, config = read_spec(document), self._config()
        used = merge_presets(spec, document, self._cluster.presets(namespace))
        apply_defaults(spec, config)
        status = to_plain(self._status(spec, config))
        if user in self._trusted:
            status |= _told_by_us(document)
        return [
            {"op": "add", "path": "/metadata", "value": _metadata(document, spec, used, config)},
            {"op": "add", "path": "/spec", "value": to_plain(spec)},
            {"op": "add", "path": "/status", "value": status},
        ]

    def update(self, new: dict[str, Any], old: dict[str, Any], user: str) -> PatchOps:
        if user in self._trusted:
            return []
        return self._keep_spec(new, old) + _keep_status(new, old)

    def _keep_spec(self, new: dict[str, Any], old: dict[str, Any]) -> PatchOps:
        """The same manifest applied once more is no change: kubectl sends its lists without the defaults in them."""
        if new.get("spec") == old.get("spec") or not old.get("spec"):
            return []
        spec = read_spec(new)
        try:
            merge_presets(spec, new, self._cluster.presets(str(metadata_of(old).get("namespace") or "")))
        except Refused:
            return []  # Presets that came later and disagree are no business of a machine that runs.
        _keep_identity(spec, old)
        apply_defaults(spec, self._config())
        same = to_plain(spec) == old["spec"]
        return [{"op": "add", "path": "/spec", "value": old["spec"]}] if same else []

    def _status(self, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> VirtualMachineInstanceStatus:
        now = self._clock.now()
        guest = spec.domain.memory.guest if spec.domain.memory else None
        cpu = spec.domain.cpu
        began = VirtualMachineInstancePhaseTransitionTimestamp(
            phase=names.PHASE_PENDING, phase_transition_timestamp=rfc3339(now)
        )
        return VirtualMachineInstanceStatus(
            phase=names.PHASE_PENDING,
            phase_transition_timestamps=[began],
            handoffs=[Handoff(name=ACCEPTED.name, owner=ACCEPTED.owner, time=rfc3339_micro(now))],
            runtime_user=0 if config.has("Root") else names.LAUNCHER_UID,
            current_cpu_topology=CPUTopology(cores=cpu.cores, sockets=cpu.sockets, threads=cpu.threads)
            if cpu
            else None,
            memory=MemoryStatus(guest_at_boot=guest, guest_current=guest, guest_requested=guest) if guest else None,
        )


def _keep_identity(spec: VirtualMachineInstanceSpec, old: dict[str, Any]) -> None:
    """The UUID was chosen by chance when the machine was made."""
    known = inside(old, "spec.domain.firmware.uuid")
    firmware = spec.domain.firmware or Firmware()
    if isinstance(known, str) and not firmware.uuid:
        spec.domain.firmware = replace(firmware, uuid=known)


def _told_by_us(document: dict[str, Any]) -> dict[str, Any]:
    """Whether changed blocks are tracked is decided before there is a machine; only virt-controller says it."""
    tracking = inside(document, "status.changedBlockTracking")
    return {"changedBlockTracking": tracking} if isinstance(tracking, dict) else {}


def _keep_status(new: dict[str, Any], old: dict[str, Any]) -> PatchOps:
    """A user's change of the status is quietly undone, so that `kubectl replace` and `edit` still work."""
    if new.get("status") == old.get("status"):
        return []
    if "status" not in old:
        return [{"op": "remove", "path": "/status"}]
    return [{"op": "add", "path": "/status", "value": old["status"]}]


def _metadata(
    document: dict[str, Any], spec: VirtualMachineInstanceSpec, presets: list[str], config: ClusterConfig
) -> dict[str, Any]:
    metadata = dict(metadata_of(document))
    metadata["finalizers"] = with_finalizer(document, names.FINALIZER_VMI)
    annotations = dict(annotations_of(document))
    if _has_pci_topology(spec):
        annotations.setdefault(names.ANNOTATION_PCI_TOPOLOGY_VERSION, names.PCI_TOPOLOGY_V3)
    annotations.update({f"{PRESET_ANNOTATION}{name}": names.API_VERSION for name in presets})
    cpu = spec.domain.cpu
    if cpu is not None and cpu.isolate_emulator_thread and config.has("AlignCPUs") and config.even_parity is not None:
        annotations.setdefault(names.ANNOTATION_EVEN_PARITY, config.even_parity)
    security = spec.domain.launch_security
    if security is not None and security.tdx is not None and (path := _quote_socket(config)):
        annotations.setdefault(names.ANNOTATION_QUOTE_SOCKET, path)
    if annotations:
        metadata["annotations"] = annotations
    return metadata


def _quote_socket(config: ClusterConfig) -> str:
    """Where TDX guests find the service that vouches for them."""
    node: Any = config.raw
    for key in ("confidentialCompute", "tdx", "attestation", "qgsSocketPath"):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node if isinstance(node, str) else ""


def _has_pci_topology(spec: VirtualMachineInstanceSpec) -> bool:
    machine = spec.domain.machine.type if spec.domain.machine else ""
    return spec.architecture in _PCI_TOPOLOGY_ARCHITECTURES and ("q35" in machine or machine.startswith("virt"))
