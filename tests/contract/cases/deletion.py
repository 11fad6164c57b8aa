"""Deletion: preconditions, finalizers, grace, policies, owners and namespaces."""

from __future__ import annotations

from typing import Any

from contract.cases.lists import gadget, names
from contract.table import case
from contract.talk import GADGETS, MAPS, MERGE, PODS, Reply, Talk


def _map(t: Talk, name: str = "a", **metadata: Any) -> Reply:
    return t.given(MAPS, {"metadata": {"name": name, **metadata}})


@case()
def answers(t: Talk) -> None:
    """Some kinds answer with the object, others with a Status."""
    _map(t)
    t.delete(f"{MAPS}/a")
    t.given(GADGETS, gadget("a"))
    t.delete(f"{GADGETS}/a")
    place = "/api/v1/namespaces/{ns}"
    t.given(f"{place}/secrets", {"metadata": {"name": "a"}})
    t.delete(f"{place}/secrets/a")
    t.given(f"{place}/serviceaccounts", {"metadata": {"name": "a"}})
    t.delete(f"{place}/serviceaccounts/a")
    t.given(f"{place}/services", {"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}})
    t.delete(f"{place}/services/a")
    t.given("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", {"metadata": {"name": "a"}})
    t.delete("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/a")


@case()
def preconditions(t: Talk) -> None:
    made = _map(t)
    t.delete(f"{MAPS}/a", {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}})
    t.send("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}, content_type=MERGE)
    t.delete(f"{MAPS}/a", {"preconditions": {"resourceVersion": made.revision}})
    t.delete(f"{MAPS}/a", {"preconditions": {"uid": made.uid}})


@case()
def full_options(t: Talk) -> None:
    _map(t)
    t.delete(f"{MAPS}/a", {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 5})
    _map(t, "b")
    t.delete(f"{MAPS}/b?gracePeriodSeconds=0&propagationPolicy=Background")


@case(words=False)
def bad_options(t: Talk) -> None:
    _map(t)
    t.delete(f"{MAPS}/a", {"propagationPolicy": "Sometimes"})
    t.delete(f"{MAPS}/a?propagationPolicy=Sometimes")
    t.delete(f"{MAPS}/a", {"propagationPolicy": "Orphan", "orphanDependents": True})
    t.delete(f"{MAPS}/a", {"gracePeriodSeconds": "long"})
    t.delete(f"{MAPS}/a", {"dryRun": ["Some"]})
    t.delete(f"{MAPS}/a", {"kind": "Pod", "apiVersion": "v1"})
    t.delete(f"{MAPS}/a", b"{")
    t.delete(f"{MAPS}/a?dryRun=Some")


@case()
def dry(t: Talk) -> None:
    _map(t)
    t.delete(f"{MAPS}/a?dryRun=All")
    t.delete(f"{MAPS}/a", {"dryRun": ["All"]})
    t.get(f"{MAPS}/a")


@case()
def finalizers(t: Talk) -> None:
    _map(t, finalizers=["contract.test/one", "contract.test/two"])
    t.delete(f"{MAPS}/a")
    t.delete(f"{MAPS}/a")
    t.get(f"{MAPS}/a")
    t.patch(f"{MAPS}/a", {"data": {"k": "v"}})
    t.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["contract.test/one", "contract.test/new"]}})
    t.patch(f"{MAPS}/a", {"metadata": {"deletionTimestamp": None}})
    t.create(MAPS, {"metadata": {"name": "a"}})
    t.patch(f"{MAPS}/a", {"metadata": {"finalizers": ["contract.test/one"]}})
    t.patch(f"{MAPS}/a", {"metadata": {"finalizers": []}})
    t.get(f"{MAPS}/a")


@case()
def finalizers_of_custom_objects(t: Talk) -> None:
    body = gadget("a")
    body["metadata"]["finalizers"] = ["contract.test/one"]
    t.create(GADGETS, body)
    t.delete(f"{GADGETS}/a")
    t.patch(f"{GADGETS}/a/status", {"status": {"phase": "Going"}})
    t.patch(f"{GADGETS}/a/status", {"metadata": {"finalizers": []}})
    t.patch(f"{GADGETS}/a", [{"op": "remove", "path": "/metadata/finalizers"}], "application/json-patch+json")
    t.get(f"{GADGETS}/a")


@case()
def collections(t: Talk) -> None:
    for name in "abc":
        _map(t, name, labels={"which": name})
    t.delete(f"{MAPS}?labelSelector=which+in+(a,b)")
    t.get(f"{MAPS}?labelSelector=which", pick=names)
    t.delete(f"{MAPS}?labelSelector=which&dryRun=All", pick=names)
    t.delete(f"{MAPS}?fieldSelector=metadata.name%3Dc", pick=names)
    t.get(f"{MAPS}?labelSelector=which", pick=names)
    t.delete(GADGETS)


def _pod(name: str, **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
    body |= {"automountServiceAccountToken": False}
    return {"metadata": {"name": name}, "spec": body | spec}


@case()
def pods_and_grace(t: Talk) -> None:
    t.given(PODS, _pod("unscheduled"))
    t.delete(f"{PODS}/unscheduled")
    t.get(f"{PODS}/unscheduled")
    t.given(PODS, _pod("on-a-node", nodeName="contract-node"))
    t.delete(f"{PODS}/on-a-node", pick=_deletion)
    t.delete(f"{PODS}/on-a-node", {"gracePeriodSeconds": 60}, pick=_deletion)
    t.delete(f"{PODS}/on-a-node", {"gracePeriodSeconds": 5}, pick=_deletion)
    t.delete(f"{PODS}/on-a-node", {"gracePeriodSeconds": 0}, pick=_deletion)
    t.get(f"{PODS}/on-a-node")


def _deletion(body: Any) -> Any:
    return {k: v for k, v in body["metadata"].items() if k.startswith("deletion") or k == "generation"}


def _owned(t: Talk, owner: Reply, name: str, *, blocks: bool = False) -> None:
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.body["metadata"]["name"], "uid": owner.uid}
    _map(t, name, ownerReferences=[ref | ({"blockOwnerDeletion": True} if blocks else {})])


def _gone(reply: Reply) -> bool:
    return reply.status == 404


@case()
def background(t: Talk) -> None:
    owner = _map(t, "owner")
    _owned(t, owner, "owned")
    t.delete(f"{MAPS}/owner")
    t.until(f"{MAPS}/owned", _gone)


@case()
def foreground(t: Talk) -> None:
    owner = _map(t, "owner")
    _owned(t, owner, "owned", blocks=True)
    t.send("PATCH", f"{MAPS}/owned", {"metadata": {"finalizers": ["contract.test/hold"]}}, content_type=MERGE)
    t.delete(f"{MAPS}/owner", {"propagationPolicy": "Foreground"})
    t.until(f"{MAPS}/owned", lambda reply: "deletionTimestamp" in reply.body["metadata"])
    t.get(f"{MAPS}/owner")
    t.send("PATCH", f"{MAPS}/owned", {"metadata": {"finalizers": None}}, content_type=MERGE)
    t.until(f"{MAPS}/owner", _gone)


@case()
def orphans(t: Talk) -> None:
    owner = _map(t, "owner")
    _owned(t, owner, "owned")
    t.delete(f"{MAPS}/owner", {"propagationPolicy": "Orphan"})
    t.until(f"{MAPS}/owner", _gone)
    t.until(f"{MAPS}/owned", lambda reply: "ownerReferences" not in reply.body["metadata"])


@case()
def an_owner_that_is_not_there(t: Talk) -> None:
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "11111111-2222-3333-4444-555555555555"}
    _map(t, "owned", ownerReferences=[ref])
    t.until(f"{MAPS}/owned", _gone)


@case()
def one_of_two_owners(t: Talk) -> None:
    first, second = _map(t, "first"), _map(t, "second")
    refs = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": o.body["metadata"]["name"], "uid": o.uid}
        for o in (first, second)
    ]
    _map(t, "owned", ownerReferences=refs)
    t.delete(f"{MAPS}/first", {"propagationPolicy": "Background"})
    t.until(f"{MAPS}/owned", lambda reply: len(reply.body["metadata"]["ownerReferences"]) == 1)
    t.delete(f"{MAPS}/second")
    t.until(f"{MAPS}/owned", _gone)


@case()
def a_namespace(t: Talk) -> None:
    _map(t, finalizers=["contract.test/hold"])
    t.delete(f"/api/v1/namespaces/{t.ns}")
    t.create(MAPS, {"metadata": {"name": "late"}})
    t.create(GADGETS, gadget("late"))
    t.delete(f"/api/v1/namespaces/{t.ns}", pick=lambda body: body["status"]["phase"])
    t.until(f"{MAPS}/a", lambda reply: "deletionTimestamp" in reply.body["metadata"])
    t.send("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)
    t.until(f"/api/v1/namespaces/{t.ns}", _gone)


@case()
def namespaces_that_stay(t: Talk) -> None:
    t.delete("/api/v1/namespaces/default")
    t.delete("/api/v1/namespaces/kube-system")
    t.delete("/api/v1/namespaces/contract-nowhere")
    t.call("DELETE", "/api/v1/namespaces?dryRun=All&labelSelector=nobody%3Dhas")
