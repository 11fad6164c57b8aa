"""VMIs, Pods and Events in the states that explain has to tell apart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from virt_core.apis.base import from_plain
from virt_core.apis.handoffs import HANDOFFS
from virt_core.apis.nodes import Event
from virt_core.apis.pods import Pod
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.times import rfc3339, rfc3339_micro
from virtctl.explain.facts import Facts

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
OWNER = {kind.name: kind.owner for kind in HANDOFFS}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def vmi(phase: str, handoffs: dict[str, float] | None = None, **status: Any) -> VirtualMachineInstance:
    done = [{"name": n, "owner": OWNER.get(n, ""), "time": rfc3339_micro(at(s))} for n, s in (handoffs or {}).items()]
    meta = {"name": "guest", "namespace": "default", "uid": "u1", "creationTimestamp": rfc3339(START)}
    if phase not in ("", "Pending"):
        status = {"activePods": {"p1": status.get("nodeName", "")}, **status}
    return from_plain(
        {"metadata": meta, "status": {"phase": phase, "handoffs": done, **status}}, VirtualMachineInstance
    )


def vm(**spec: Any) -> VirtualMachine:
    return from_plain(
        {"metadata": {"name": "guest", "namespace": "default", "uid": "u0"}, "spec": spec}, VirtualMachine
    )


def condition(kind: str, status: str, reason: str = "", message: str = "", since: float = 0) -> dict[str, Any]:
    moment = rfc3339(at(since))
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment}


def pod(phase: str = "Pending", node: str = "node1", **status: Any) -> Pod:
    meta = {"name": "virt-launcher-guest-abc", "namespace": "default", "uid": "p1"}
    return from_plain({"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}, Pod)


def event(kind: str, reason: str, message: str, seconds: float = 1, **fields: Any) -> Event:
    about = {"kind": kind, "name": "guest" if kind != "Pod" else "virt-launcher-guest-abc"}
    plain = {
        "type": "Warning",
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "lastTimestamp": rfc3339(at(seconds)),
    }
    return from_plain({**plain, **fields}, Event)


def facts(machine: VirtualMachineInstance | None, now: float = 5, **other: Any) -> Facts:
    return Facts("default", "guest", at(now), vmi=machine, **other)


ALL = {
    "accepted": 0.0,
    "pod-created": 0.05,
    "pod-started": 0.6,
    "handed-over": 0.65,
    "network-ready": 1.0,
    "launcher-ready": 0.9,
    "domain-defined": 1.2,
    "guest-started": 1.5,
    "running": 1.55,
}


def upto(name: str) -> dict[str, float]:
    order = list(ALL)
    return {n: ALL[n] for n in order[: order.index(name) + 1]}
