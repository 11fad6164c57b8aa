"""Events, under both of their names."""

from __future__ import annotations

from typing import Any

from contract.cases.kinds import CORE
from contract.table import case
from contract.talk import TABLE, Talk


@case()
def events(t: Talk) -> None:
    about = {"kind": "Pod", "namespace": t.ns, "name": "p", "uid": "u", "apiVersion": "v1"}
    times = {"firstTimestamp": "2020-01-01T00:00:00Z", "lastTimestamp": "2020-01-01T00:00:00Z"}
    body: dict[str, Any] = {
        "metadata": {"name": "a"},
        "involvedObject": about,
        "reason": "Started",
        "message": "it has started",
    }
    body |= {"count": 2, "source": {"component": "test", "host": "h"}, "type": "Normal", **times}
    t.create(f"{CORE}/events", body)
    t.get(f"{CORE}/events?fieldSelector=involvedObject.name%3Dp,type%3DNormal", pick=lambda b: len(b["items"]))
    t.get(f"{CORE}/events?fieldSelector=involvedObject.kind%3DNode", pick=lambda b: len(b["items"]))
    t.get(f"{CORE}/events/a", accept=TABLE)
    t.get("/apis/events.k8s.io/v1/namespaces/{ns}/events/a")
    t.patch(f"{CORE}/events/a", {"count": 3})
    t.normal._words = False
    t.create(f"{CORE}/events", body | {"metadata": {"name": "b"}, "involvedObject": about | {"namespace": "other"}})
    t.create(f"{CORE}/events", body | {"metadata": {"name": "c"}, "type": "Odd"})


@case()
def new_events(t: Talk) -> None:
    place = "/apis/events.k8s.io/v1/namespaces/{ns}/events"
    about = {"kind": "Pod", "namespace": t.ns, "name": "p", "uid": "u", "apiVersion": "v1"}
    body = {"metadata": {"name": "a"}, "regarding": about, "reason": "Started", "note": "it has started"}
    body |= {"eventTime": "2020-01-01T00:00:00.000000Z", "type": "Normal", "action": "Start"}
    body |= {"reportingController": "contract.test/c", "reportingInstance": "i"}
    t.create(place, body)
    t.get(f"{CORE}/events/a")
    t.get(f"{place}/a", accept=TABLE)
    t.normal._words = False
    t.create(place, {k: v for k, v in body.items() if k != "eventTime"} | {"metadata": {"name": "b"}})
