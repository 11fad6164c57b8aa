"""What Pods and Events say about a step that does not come: the raw material for one honest sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from virt_core.apis import names
from virt_core.apis.nodes import Event
from virt_core.apis.pods import ContainerStatus, Pod
from virt_core.runtime.times import parse_rfc3339
from virtctl.explain.facts import Facts, event_time

#: Container states that pass by themselves.
_NORMAL_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})
_MAX_EVENTS = 5
_MAX_TEXT = 240


@dataclass(frozen=True, slots=True)
class Trouble:
    """Our opening words, and the cause in the words of whoever reported it."""

    opening: str
    cause: str

    def __str__(self) -> str:
        return f"{self.opening}: {self.cause}" if self.opening else self.cause


def pod_trouble(pod: Pod) -> Trouble | None:
    """Why this Pod does not run; None when nothing is wrong so far."""
    for condition in pod.status.conditions:
        if condition.type == names.CONDITION_POD_SCHEDULED and condition.status == "False":
            return Trouble(f"no node accepts its Pod {pod.metadata.name}", condition.message or condition.reason)
    for status in [*pod.status.init_container_statuses, *pod.status.container_statuses]:
        if trouble := _container_trouble(status):
            where = f"its Pod {pod.metadata.name} on {pod.spec.node_name or 'no node'} cannot start"
            return Trouble(f"{where}: {trouble.opening}", trouble.cause)
    return Trouble("", pod_end(pod)) if pod.status.phase == "Failed" else None


def pod_end(pod: Pod) -> str:
    """How a Pod ended."""
    for status in pod.status.container_statuses:
        ended = status.state.terminated if status.state else None
        if ended is not None:
            because = ended.message or ended.reason
            tail = f" ({because})" if because else ""
            return f"container {status.name} of its Pod {pod.metadata.name} exited with code {ended.exit_code}{tail}"
    return f"its Pod {pod.metadata.name} ended: {pod.status.message or pod.status.reason or pod.status.phase}"


def _container_trouble(status: ContainerStatus) -> Trouble | None:
    waiting = status.state.waiting if status.state else None
    if waiting is None or waiting.reason in _NORMAL_WAITS:
        return None
    if not waiting.message:
        return Trouble(f"container {status.name}", waiting.reason)
    return Trouble(f"container {status.name}: {waiting.reason}", waiting.message)


_MISSING = re.compile(r'\b(secret|configmap|persistentvolumeclaim) "([^"]+)" not found')
_KINDS = {"secret": "Secret", "configmap": "ConfigMap", "persistentvolumeclaim": "PersistentVolumeClaim"}


def plain_cause(message: str, namespace: str) -> str:
    """A kubelet speaks of volumes and mounts; the user wants to know which object is missing."""
    found = _MISSING.search(message)
    return f"there is no {_KINDS[found[1]]} {namespace}/{found[2]} ({message})" if found else message


def last_warning(facts: Facts, *kinds: str) -> Event | None:
    """The newest Warning about an object of one of these kinds (all kinds when none is given)."""
    for event in reversed(facts.events):
        if event.type == "Warning" and (not kinds or event.involved_object.kind in kinds):
            return event
    return None


def warning_after(facts: Facts, moment: datetime | None, *kinds: str) -> Event | None:
    """The newest Warning, if it is not older than `moment`: an old trouble may be over."""
    event = last_warning(facts, *kinds)
    if event is None or moment is None or not event_time(event):
        return event
    # Event times have whole seconds; the moment has microseconds.
    return event if (parse_rfc3339(event_time(event)) - moment).total_seconds() > -1.0 else None


def evidence(facts: Facts, told: str = "") -> list[str]:
    """Lines below the timeline: Pods, then the last Warnings, then what could not be read.

    What the sentence has `told` already is not repeated.
    """
    lines = [_pod_line(pod, told) for pod in facts.pods]
    if facts.vmi is not None and not facts.pods and "Pods" not in facts.unread:
        lines.append("Pod: none")
    warnings = [e for e in facts.events if e.type == "Warning" and e.message.rstrip(".") not in told]
    lines += [_event_line(event, facts.now) for event in warnings[-_MAX_EVENTS:]]
    lines += [f"{what}: you may not read them" for what in facts.unread]
    return lines


def _pod_line(pod: Pod, told: str) -> str:
    words = [f"Pod {pod.metadata.name}: {pod.status.phase or 'new'}"]
    if pod.spec.node_name:
        words.append(f"on {pod.spec.node_name}")
    if pod.metadata.deletion_timestamp:
        words.append("being deleted")
    troubles = filter(None, (_container_trouble(s) for s in pod.status.container_statuses))
    trouble = next((t for t in troubles if t.cause.rstrip(".") not in told), None)
    return " ".join(words) + (f"; {_short(str(trouble))}" if trouble else "")


def _event_line(event: Event, now: datetime) -> str:
    times = f", {event.count} times" if event.count > 1 else ""
    when = event_time(event)
    ago = f"{max((now - parse_rfc3339(when)).total_seconds(), 0):.0f} s ago" if when else "once"
    about = event.involved_object
    return f"Event {event.reason} on {about.kind} {about.name} ({ago}{times}): {_short(event.message)}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
