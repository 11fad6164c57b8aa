"""Pods: defaults, what may change, and the subresources, as far as they go without a node."""

from __future__ import annotations

from typing import Any

from contract.table import case
from contract.talk import PODS, TABLE, Talk


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"containers": [{"name": "c", "image": "i:1"}], "schedulerName": "nobody"}
    return {"metadata": {"name": name}, "spec": body | {"automountServiceAccountToken": False} | spec}


def _done(t: Talk, *names: str) -> None:
    for name in names or ("p",):
        t.send("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


@case()
def defaults(t: Talk) -> None:
    t.create(PODS, pod())
    t.get(f"{PODS}/p", accept=TABLE)
    _done(t)


@case()
def defaults_of_parts(t: Talk) -> None:
    container = {
        "name": "c",
        "image": "registry.test/i",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"cpu": "1", "memory": "64Mi"}},
        "livenessProbe": {"httpGet": {"port": 80}},
        "readinessProbe": {"exec": {"command": ["true"]}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "securityContext": {"capabilities": {"drop": ["ALL"]}},
    }
    volumes = [
        {"name": "v", "emptyDir": {}},
        {"name": "w", "secret": {"secretName": "s"}},
        {"name": "x", "configMap": {"name": "c"}},
        {"name": "y", "hostPath": {"path": "/x"}},
        {"name": "z", "image": {"reference": "r:1"}},
        {"name": "u", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "t", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "s", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ]
    init = {"name": "i", "image": "i@sha256:" + "a" * 64}
    t.create(PODS, pod(containers=[container], initContainers=[init], volumes=volumes, hostNetwork=False))
    _done(t)


@case()
def with_a_token(t: Talk) -> None:
    t.create(PODS, pod(automountServiceAccountToken=True))
    _done(t)


@case()
def qos_classes(t: Talk) -> None:
    full = {"limits": {"cpu": "1", "memory": "1Gi"}}
    for name, resources in (("a", full), ("b", {"requests": {"cpu": "1"}}), ("c", {})):
        body = pod(name, containers=[{"name": "c", "image": "i:1", "resources": resources}])
        t.create(PODS, body, pick=lambda b: [b["status"], b["spec"]["containers"][0]["resources"]])
    _done(t, "a", "b", "c")


@case()
def gated(t: Talk) -> None:
    t.create(PODS, pod(schedulingGates=[{"name": "contract.test/gate"}]), pick=lambda b: b["status"])
    t.patch(f"{PODS}/p", {"spec": {"nodeSelector": {"a": "b"}}}, pick=lambda b: b["spec"]["nodeSelector"])
    t.patch(f"{PODS}/p", {"spec": {"schedulingGates": []}}, pick=lambda b: b["spec"].get("schedulingGates"))
    t.normal._words = False
    t.patch(f"{PODS}/p", {"spec": {"schedulingGates": [{"name": "contract.test/gate"}]}})
    _done(t)


@case(words=False)
def invalid(t: Talk) -> None:
    wrong: list[dict[str, Any]] = [
        {"containers": []},
        {"containers": [{"name": "C", "image": "i"}]},
        {"containers": [{"name": "c"}]},
        {"containers": [{"image": "i"}]},
        {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]},
        {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "none", "mountPath": "/x"}]}]},
        {"restartPolicy": "Sometimes"},
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]},
        {"dnsPolicy": "Odd"},
        {"terminationGracePeriodSeconds": -1},
        {"nodeSelector": {"bad key": "x"}},
        {"tolerations": [{"key": "a", "operator": "Like"}]},
    ]
    for spec in wrong:
        t.create(PODS, pod(**spec))
    _done(t)


@case(words=False)
def what_may_change(t: Talk) -> None:
    t.given(PODS, pod())

    def patch(spec: Any) -> None:
        t.patch(f"{PODS}/p", {"spec": spec}, "application/strategic-merge-patch+json", pick=lambda b: b["spec"])

    patch({"containers": [{"name": "c", "image": "other:2"}]})
    patch({"containers": [{"name": "c", "command": ["x"]}]})
    patch({"restartPolicy": "Never"})
    patch({"activeDeadlineSeconds": 100})
    patch({"tolerations": [{"key": "a", "operator": "Exists"}]})
    patch({"nodeName": "n"})
    patch({"nodeSelector": {"a": "b"}})
    patch({"terminationGracePeriodSeconds": 5})
    patch({"containers": [{"name": "d", "image": "new"}]})
    t.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, pick=lambda b: b["metadata"])
    _done(t)


@case()
def the_status(t: Talk) -> None:
    t.given(PODS, pod())
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready], "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
    t.patch(f"{PODS}/p/status", {"status": status}, "application/strategic-merge-patch+json")
    t.patch(f"{PODS}/p", {"status": {"phase": "Failed"}}, pick=lambda b: b["status"]["phase"])
    t.get(f"{PODS}/p", accept=TABLE, pick=lambda b: b["rows"][0]["cells"])
    _done(t)


@case()
def binding(t: Talk) -> None:
    made = t.given(PODS, pod())
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "contract-node"}}
    t.create(f"{PODS}/p/binding", body | {"metadata": {"name": "p", "uid": "11111111-2222-3333-4444-555555555555"}})
    t.create(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {}})
    t.create(f"{PODS}/p/binding", body | {"metadata": {"name": "p", "uid": made.uid, "annotations": {"a": "b"}}})
    t.create(f"{PODS}/p/binding", body)
    t.get(f"{PODS}/p", pick=lambda b: [b["spec"]["nodeName"], b["metadata"]["annotations"], b["status"]])
    t.create(f"{PODS}/none/binding", body | {"metadata": {"name": "none"}})
    _done(t)


@case()
def eviction(t: Talk) -> None:
    t.given(PODS, pod())
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    t.create(f"{PODS}/p/eviction?dryRun=All", body)
    t.create(f"{PODS}/p/eviction", body | {"deleteOptions": {"dryRun": ["All"]}})
    t.create(f"{PODS}/p/eviction", body | {"metadata": {"name": "other"}})
    t.create(f"{PODS}/p/eviction", body)
    t.get(f"{PODS}/p")
    t.create(f"{PODS}/none/eviction", body | {"metadata": {"name": "none"}})


@case()
def eviction_under_a_budget(t: Talk) -> None:
    guarded = pod()
    guarded["metadata"]["labels"] = {"app": "guarded"}
    t.given(PODS, guarded)
    budgets = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    t.given(budgets, {"metadata": {"name": "b"}, "spec": spec})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    t.send("PATCH", f"{PODS}/p/status", {"status": ready}, content_type="application/merge-patch+json")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    counts = {"expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0}
    seen = {"status": {"observedGeneration": 1, **counts}}
    t.send("PATCH", f"{budgets}/b/status", seen, content_type="application/merge-patch+json")
    t.create(f"{PODS}/p/eviction", body)
    _done(t)


@case()
def streams_without_a_node(t: Talk) -> None:
    t.given(PODS, pod(containers=[{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]))
    t.get(f"{PODS}/p/log")
    t.get(f"{PODS}/p/log?container=none")
    t.get(f"{PODS}/p/log?container=c")
    t.get(f"{PODS}/none/log")
    t.create(f"{PODS}/p/exec?command=x&container=c", None)
    t.create(f"{PODS}/none/exec?command=x", None)
    t.create(f"{PODS}/p/portforward", None)
    _done(t)


@case(words=False)
def pod_security(t: Talk) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    t.send("PATCH", f"/api/v1/namespaces/{t.ns}", label, content_type="application/merge-patch+json")
    import time

    deadline = time.monotonic() + 20
    while t.send("POST", f"{PODS}?dryRun=All", pod(hostNetwork=True)).status == 201:
        assert time.monotonic() < deadline, "the label had no effect"
        time.sleep(0.02)
    t.create(PODS, pod())
    t.create(PODS, pod(hostNetwork=True))
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "c", "image": "i:1", "securityContext": safe}
    context = {"runAsNonRoot": True, "runAsUser": 107, "seccompProfile": {"type": "RuntimeDefault"}}
    t.create(PODS, pod(containers=[container], securityContext=context), pick=lambda b: b["kind"])
    _done(t)


@case()
def accounts_and_priorities(t: Talk) -> None:
    t.create(PODS, pod(serviceAccountName="none"))
    t.create(PODS, pod(priorityClassName="none"))
    t.create(PODS, pod(priority=5))
    t.create(PODS, pod(priorityClassName="system-node-critical"), pick=lambda b: [b["spec"]["priority"]])
    _done(t)


@case()
def own_tolerations(t: Talk) -> None:
    tolerations = [{"operator": "Exists"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]
    tolerations[1] |= {"operator": "Exists"}
    t.create(PODS, pod(tolerations=tolerations), pick=lambda b: b["spec"]["tolerations"])
    _done(t)
