"""Metrics of KubeVirt that tell of migrations and storage, with types and labels as its documentation has them."""

from __future__ import annotations

_MACHINE = ("node", "namespace", "name")
_JOB = ("vmi", "vmim", "namespace")
_MOVE = (*_MACHINE, "migration_name")
_PREFIX = "kubevirt_vmi_migration"

#: name → type, labels
OF_HANDLER = {
    f"{_PREFIX}_data_bytes_total": ("counter", _MACHINE),
    f"{_PREFIX}_data_remaining_bytes": ("gauge", _MACHINE),
    f"{_PREFIX}_data_processed_bytes": ("gauge", _MACHINE),
    f"{_PREFIX}_dirty_memory_rate_bytes": ("gauge", _MACHINE),
    f"{_PREFIX}_memory_transfer_rate_bytes": ("gauge", _MACHINE),
}
OF_CONTROLLER = {
    f"{_PREFIX}s_in_unset_phase": ("gauge", ()),
    f"{_PREFIX}s_in_pending_phase": ("gauge", ()),
    f"{_PREFIX}s_in_scheduling_phase": ("gauge", ()),
    f"{_PREFIX}s_in_running_phase": ("gauge", ()),
    f"{_PREFIX}_succeeded": ("gauge", _JOB),
    f"{_PREFIX}_failed": ("gauge", _JOB),
    f"{_PREFIX}_start_time_seconds": ("gauge", _MOVE),
    f"{_PREFIX}_end_time_seconds": ("gauge", (*_MOVE, "status")),
}
PHASE_TIME = (f"{_PREFIX}_phase_transition_time_from_creation_seconds", "histogram", ("phase",))
OF_DISKS = {
    "kubevirt_vm_disk_allocated_size_bytes": (
        "gauge",
        ("name", "namespace", "persistentvolumeclaim", "volume_mode", "device"),
    )
}
OF_SNAPSHOTS = {"kubevirt_vmsnapshot_succeeded_timestamp_seconds": ("gauge", ("name", "snapshot_name", "namespace"))}
#: The rules that KubeVirt records about storage.
RULES_OF_STORAGE = (
    "pvc:kubevirt_vmsnapshot_labels:info",
    "vm:kubevirt_vmsnapshot_disks_restored:sum",
    "vm:kubevirt_vmsnapshot_disks_restored_bytes:sum",
    "pvc:kubevirt_suspected_orphaned_storage_bytes:info",
)
#: What kube-state-metrics tells of claims, by name: its labels.
OF_KUBE_STATE = {
    "kube_persistentvolumeclaim_info": ("namespace", "persistentvolumeclaim", "storageclass", "volumename"),
    "kube_persistentvolumeclaim_labels": ("namespace", "persistentvolumeclaim"),
    "kube_persistentvolumeclaim_resource_requests_storage_bytes": ("namespace", "persistentvolumeclaim"),
    "kube_pod_spec_volumes_persistentvolumeclaims_info": ("namespace", "persistentvolumeclaim", "pod", "uid", "volume"),
}
