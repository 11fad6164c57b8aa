"""What the node's kernel and kubelet are set to, as labels: real-time scheduling, merged memory, pinned CPUs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from virt_core.apis import names
from virt_core.apis.base import Struct, decode

_CPU_MANAGER_GATE = "CPUManager"


class CpuManagerState(Struct):
    """The kubelet's own checkpoint, of which only this is ours to know."""

    policy_name: str = ""


def kernel_labels(root: str = "/") -> dict[str, str]:
    found = {}
    if _text(root, "proc/sys/kernel/sched_rt_runtime_us") == "-1":
        found[names.LABEL_REALTIME] = ""
    merging = _text(root, "sys/kernel/mm/ksm/run")
    if merging:
        found[names.LABEL_KSM_ENABLED] = "true" if merging == "1" else "false"
    return found


def cpu_manager_labels(kubelet_root: str, gates: frozenset[str]) -> dict[str, str]:
    """Whether the kubelet pins CPUs for Pods that ask; only told where the cluster wants to use it."""
    pins = _CPU_MANAGER_GATE in gates and _policy(kubelet_root) == "static"
    return dict.fromkeys((names.LABEL_CPU_MANAGER, names.LABEL_CPU_MANAGER_NEW), "true" if pins else "false")


def _policy(kubelet_root: str) -> str:
    try:
        return decode(Path(kubelet_root, "cpu_manager_state").read_bytes(), CpuManagerState).policy_name
    except (OSError, msgspec.MsgspecError):
        return ""


def _text(root: str, path: str) -> str:
    try:
        return Path(root, path).read_text().strip()
    except OSError:
        return ""
