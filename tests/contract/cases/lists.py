"""Lists: selectors, pages, revisions."""

from __future__ import annotations

import base64
import json
from typing import Any

from contract.engine import REAL
from contract.table import NotYet, case
from contract.talk import GADGETS, GROUP, MAPS, PODS, Talk


def names(body: Any) -> Any:
    return [item["metadata"]["name"] for item in body["items"]]


def _three(t: Talk) -> None:
    for name, labels in (("a", {"app": "x"}), ("b", {"app": "y", "n": "5"}), ("c", {})):
        t.given(MAPS, {"metadata": {"name": name, "labels": {"mine": "yes", **labels}}})


@case()
def plain(t: Talk) -> None:
    t.get(f"{MAPS}?labelSelector=mine")
    _three(t)
    t.get(f"{MAPS}?labelSelector=mine")
    t.get(f"{GADGETS}")


@case()
def across_namespaces(t: Talk) -> None:
    _three(t)
    t.get(f"/api/v1/configmaps?labelSelector=mine%3Dyes,app&fieldSelector=metadata.namespace%3D{t.ns}", pick=names)
    t.given(GADGETS, gadget("a"))
    t.get(f"/apis/{GROUP}/v1/gadgets?fieldSelector=metadata.namespace%3D{t.ns}", pick=names)


def gadget(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Gadget",
        "metadata": {"name": name},
        "spec": {"size": 1, **spec},
    }


@case()
def by_labels(t: Talk) -> None:
    _three(t)
    for selector in (
        "app=x",
        "app==x",
        "app!=x,mine",
        "app in (x,y)",
        "app in (x, y),n",
        "app notin (x),mine",
        "app,mine",
        "!app,mine",
        "n>4",
        "n<4",
        "app=",
        "mine=yes,app=none",
    ):
        t.get(f"{MAPS}?labelSelector={_quoted(selector)}", pick=names)


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


@case(words=False)
def by_bad_labels(t: Talk) -> None:
    for selector in ("a=b=c", "a in x", "=b", "a b", "a>b", "a in (", "!", "a b c=d", "a=b c"):
        t.get(f"{MAPS}?labelSelector={_quoted(selector)}")


@case()
def by_fields(t: Talk) -> None:
    _three(t)
    for selector in (
        "metadata.name=a",
        "metadata.name==a",
        "metadata.name!=a,metadata.name!=kube-root-ca.crt",
        f"metadata.name=a,metadata.namespace={t.ns}",
        "metadata.name=a,metadata.namespace=other",
        "metadata.name=none",
    ):
        t.get(f"{MAPS}?fieldSelector={_quoted(selector)}", pick=names)


@case()
def by_unknown_fields(t: Talk) -> None:
    t.get(f"{MAPS}?fieldSelector=data.k%3Dv")
    t.get(f"{GADGETS}?fieldSelector=spec.size%3D1")
    t.get(f"{PODS}?fieldSelector=spec.dnsPolicy%3Dx")


@case(words=False)
def by_bad_fields(t: Talk) -> None:
    t.get(f"{MAPS}?fieldSelector=metadata.name")
    t.get(f"{MAPS}?fieldSelector=metadata.name%3Da%5C")


@case()
def pods_by_fields(t: Talk) -> None:
    for name, node in (("a", "contract-node"), ("b", "")):
        spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
        t.given(PODS, {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})})
    for selector in (
        "spec.nodeName=contract-node",
        "spec.nodeName=",
        "spec.nodeName!=contract-node",
        "status.phase=Pending",
        "status.phase!=Pending",
        "spec.restartPolicy=Always,spec.schedulerName=nobody",
        "spec.hostNetwork=false",
        "status.podIP=",
    ):
        t.get(f"{PODS}?fieldSelector={_quoted(selector)}", pick=names)
    for name in "ab":
        t.send("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


@case()
def pages(t: Talk) -> None:
    _three(t)
    first = t.get(f"{MAPS}?limit=2&labelSelector=mine")
    token = first.body["metadata"]["continue"]
    t.send("DELETE", f"{MAPS}/c")
    rest = t.get(f"{MAPS}?limit=2&labelSelector=mine&continue={_quoted(token)}")
    t.note("all pages show one moment", rest.revision == first.revision)


@case()
def pages_without_selector(t: Talk) -> None:
    for name in "abc":
        t.given(GADGETS, gadget(name))
    first = t.get(f"{GADGETS}?limit=1", pick=lambda body: body["metadata"])
    token = first.body["metadata"]["continue"]
    t.get(f"{GADGETS}?limit=5&continue={_quoted(token)}", pick=lambda body: [body["metadata"], names(body)])
    t.get(f"{GADGETS}?limit=3", pick=lambda body: [body["metadata"], names(body)])
    t.get(f"{GADGETS}?limit=0", pick=lambda body: [body["metadata"], names(body)])


@case()
def bad_pages(t: Talk) -> None:
    t.get(f"{MAPS}?limit=-1", pick=lambda body: body["kind"])


@case(words=False)
def bad_tokens(t: Talk) -> None:
    t.get(f"{MAPS}?continue=nonsense")
    t.get(f"{MAPS}?continue=%21")


@case(words=False)
def bad_numbers(t: Talk) -> None:
    t.get(f"{MAPS}?limit=many")
    t.get(f"{MAPS}?timeoutSeconds=soon")
    t.get(f"{MAPS}?watch=maybe&timeoutSeconds=1&resourceVersion={t.send('GET', MAPS).revision}")


@case(words=False)
def an_expired_page(t: Talk) -> None:
    """A token of a list whose state is forgotten."""
    t.given(GADGETS, gadget("a"))
    t.given(GADGETS, gadget("b"))
    path = f"{GADGETS}?limit=1&continue={_quoted(_expired(t))}"
    if t.send("GET", path).status == 200:
        raise NotYet("a cluster of less than five minutes has forgotten nothing yet")
    gone = t.get(path)
    token = gone.body["metadata"]["continue"]
    t.get(f"{GADGETS}?limit=1&continue={_quoted(token)}", pick=names)


def _expired(t: Talk) -> str:
    """Each server has tokens of its own form."""
    if t.engine.name != REAL:
        return base64.urlsafe_b64encode(f"0123456789abcdef:1:{t.ns}:a".encode()).decode()
    token = {"v": "meta.k8s.io/v1", "rv": 1, "start": "/a\u0000"}
    return base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")


@case()
def by_revision(t: Talk) -> None:
    _three(t)
    now = t.send("GET", MAPS).revision
    t.get(f"{MAPS}?labelSelector=app&resourceVersion={now}", pick=names)
    t.get(f"{MAPS}?labelSelector=app&resourceVersion={now}&resourceVersionMatch=NotOlderThan", pick=names)
    t.get(f"{MAPS}?labelSelector=app&resourceVersion={now}&resourceVersionMatch=Exact", pick=names)
    t.get(f"{MAPS}?labelSelector=app&resourceVersion=0&resourceVersionMatch=NotOlderThan", pick=lambda b: b["kind"])


@case()
def by_bad_revision(t: Talk) -> None:
    t.get(f"{MAPS}?resourceVersion=abc")
    t.get(f"{MAPS}?resourceVersionMatch=Exact")
    t.get(f"{MAPS}?resourceVersion=5&resourceVersionMatch=Sometimes")
    t.get(f"{MAPS}?resourceVersion=0&resourceVersionMatch=Exact")
    t.get(f"{MAPS}?sendInitialEvents=true")


@case()
def from_the_future(t: Talk) -> None:
    t.get(f"{MAPS}?resourceVersion=999999999999", pick=lambda body: body["kind"])
    t.get(f"{MAPS}/kube-root-ca.crt?resourceVersion=999999999999", pick=lambda body: body["kind"])
