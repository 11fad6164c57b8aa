"""`virt-local status`: what runs, since when, how often it was restarted, and what it carries."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from virt_core.kube.client import KubeClient
from virt_core.kube.connect import ConnectError, load_connection
from virt_core.kube.errors import ApiError
from virt_core.runtime.procs import ProcessId
from virt_local.up import readiness
from virt_local.up.instance import DEFAULT_NAME, Instance
from virt_local.up.state import Entry, ProcessBook, supervisor_of

_COUNTED = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "vmis": "/apis/kubevirt.io/v1/virtualmachineinstances",
}


@dataclass(slots=True)
class Status:
    """`running`: the supervisor lives. `ready`: it lives, every component runs and the API answers."""

    running: bool
    ready: bool
    components: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def read_status(instance: Instance) -> Status:
    supervisor = supervisor_of(instance)
    entries = ProcessBook(instance.run_dir / "pids").entries()
    rows = [_row(entry) for entry in entries]
    counts = _counts(instance) if entries else {}
    ready = supervisor is not None and bool(rows) and all(row["pid"] for row in rows) and bool(counts)
    return Status(supervisor is not None, ready, rows, counts)


def to_plain(instance: Instance, status: Status) -> dict[str, Any]:
    return {
        "instance": instance.name,
        "dataDir": str(instance.data_dir),
        "server": instance.server,
        "kubeconfig": str(instance.admin_kubeconfig),
        "automation": instance.automation_address,
        "running": status.running,
        "ready": status.ready,
        "components": status.components,
        "counts": status.counts,
    }


def render(instance: Instance, status: Status) -> str:
    """The table that people read."""
    if not status.running and not any(row["pid"] for row in status.components):
        return f"virt-local is not running (data in {instance.data_dir}). Start it with: {_up(instance)}"
    head = f"{'COMPONENT':<24}{'STATE':<12}{'PID':>8}  {'UP FOR':<10}RESTARTS"
    lines = [head, *(_line(row) for row in status.components), ""]
    if not status.running:
        lines.append("The supervisor is gone: nothing is restarted. Take over with: " + _up(instance))
    lines.append(", ".join(f"{count} {name}" for name, count in status.counts.items()) or "The API does not answer.")
    lines.append(f"API {instance.server}, kubeconfig {instance.admin_kubeconfig}")
    lines.append(f"automation (gRPC) {instance.automation_address}, its CA {instance.automation_ca}")
    return "\n".join(lines)


def _up(instance: Instance) -> str:
    named = "" if instance.name == DEFAULT_NAME else f" --instance {instance.name}"
    return f"virt-local up --detach{named}"


def _line(row: dict[str, Any]) -> str:
    return f"{row['name']:<24}{row['state']:<12}{row['pid'] or '-':>8}  {_span(row['seconds']):<10}{row['restarts']}"


def _row(entry: Entry) -> dict[str, Any]:
    process = entry.process
    return {
        "name": entry.component,
        "state": "running" if process else "restarting",
        "pid": process.pid if process else 0,
        "seconds": round(age_of(process)) if process else 0,
        "restarts": entry.restarts,
    }


def age_of(process: ProcessId) -> float:
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(since_boot - process.start_time / os.sysconf("SC_CLK_TCK"), 0.0)


def _span(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h"


def _counts(instance: Instance) -> dict[str, int]:
    """How many of each there are; nothing when the API does not answer."""
    try:
        client = KubeClient(load_connection(str(instance.admin_kubeconfig)), "virt-local", timeout_s=5.0)
    except ConnectError:
        return {}
    try:
        if not readiness.api_ready(client):
            return {}
        return {name: count for name, path in _COUNTED.items() if (count := _count(client, path)) is not None}
    finally:
        client.close()


def _count(client: KubeClient, path: str) -> int | None:
    try:
        listed = msgspec.json.decode(client.raw("GET", path, query={"limit": "1"}))
    except ApiError:
        return None
    return len(listed.get("items") or ()) + int((listed.get("metadata") or {}).get("remainingItemCount") or 0)
