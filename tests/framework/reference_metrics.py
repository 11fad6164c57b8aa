"""The metrics of KubeVirt that tell of migrations, with their types and labels, as its documentation has them."""

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
