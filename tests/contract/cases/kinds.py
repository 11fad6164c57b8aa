"""Built-in kinds that stand around virtual machines: their defaults, their columns, their first rules."""

from __future__ import annotations

from typing import Any

from contract.table import case
from contract.talk import TABLE, Talk

CORE = "/api/v1/namespaces/{ns}"


def _shown(t: Talk, path: str, body: Any, *, cluster: bool = False) -> None:
    """Creates an object, shows it as an object and as a table, deletes it."""
    name = body["metadata"]["name"]
    if cluster:
        t.undo(f"{path}/{name}")
    t.create(path, body)
    t.get(f"{path}/{name}", accept=TABLE)
    t.send("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})


@case()
def config_maps(t: Talk) -> None:
    _shown(t, f"{CORE}/configmaps", {"metadata": {"name": "a"}, "data": {"k": "v"}, "binaryData": {"b": "AAAA"}})


@case()
def secrets(t: Talk) -> None:
    body = {"metadata": {"name": "a"}, "stringData": {"p": "q"}, "data": {"r": "c2V0"}}
    _shown(t, f"{CORE}/secrets", body)
    basic = {"metadata": {"name": "b"}, "type": "kubernetes.io/basic-auth", "stringData": {"username": "u"}}
    _shown(t, f"{CORE}/secrets", basic)
    t.given(f"{CORE}/secrets", body)
    t.patch(f"{CORE}/secrets/a", {"stringData": {"s": "t"}})
    t.normal._words = False
    t.patch(f"{CORE}/secrets/a", {"type": "other"})
    t.create(f"{CORE}/secrets", {"metadata": {"name": "c"}, "type": "kubernetes.io/tls", "data": {}})


@case()
def service_accounts(t: Talk) -> None:
    _shown(t, f"{CORE}/serviceaccounts", {"metadata": {"name": "a"}, "imagePullSecrets": [{"name": "s"}]})


@case()
def services(t: Talk) -> None:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81, "targetPort": "web", "protocol": "UDP"}]
    _shown(t, f"{CORE}/services", {"metadata": {"name": "plain"}, "spec": {"ports": ports, "selector": {"no": "pod"}}})
    headless = {"clusterIP": "None", "selector": {"no": "pod"}}
    _shown(t, f"{CORE}/services", {"metadata": {"name": "headless"}, "spec": headless})
    external = {"type": "ExternalName", "externalName": "example.test"}
    _shown(t, f"{CORE}/services", {"metadata": {"name": "external"}, "spec": external})
    node_port = {"type": "NodePort", "ports": [{"port": 80}]}
    _shown(t, f"{CORE}/services", {"metadata": {"name": "port"}, "spec": node_port})
    balanced = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    _shown(t, f"{CORE}/services", {"metadata": {"name": "lb"}, "spec": balanced})


@case(words=False)
def bad_services(t: Talk) -> None:
    for spec in (
        {},
        {"ports": [{"port": 0}]},
        {"ports": [{"port": 80}, {"port": 81}]},
        {"type": "Other", "ports": [{"port": 80}]},
        {"type": "ExternalName"},
        {"ports": [{"port": 80, "protocol": "ICMP"}]},
        {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]},
    ):
        t.create(f"{CORE}/services", {"metadata": {"name": "bad"}, "spec": spec})


@case()
def volume_claims(t: Talk) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": "a"}, "spec": spec | {"storageClassName": ""}}
    _shown(t, f"{CORE}/persistentvolumeclaims", body)


@case(words=False)
def bad_volume_claims(t: Talk) -> None:
    good = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    wrong: list[dict[str, Any]] = [
        {"accessModes": []},
        {"resources": {}},
        {"accessModes": ["Sometimes"]},
        {"resources": {"requests": {"storage": "much"}}},
    ]
    for change in wrong:
        t.create(f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "bad"}, "spec": good | change})
    t.given(f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "a"}, "spec": good})
    t.patch(f"{CORE}/persistentvolumeclaims/a", {"spec": {"volumeMode": "Block"}})
    t.patch(f"{CORE}/persistentvolumeclaims/a", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})


@case()
def volumes(t: Talk) -> None:
    name = t.own("volume", "VOLUME")
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"}}
    body = {"metadata": {"name": name}, "spec": spec | {"storageClassName": "contract-none"}}
    t.undo(f"/api/v1/persistentvolumes/{name}")
    t.create("/api/v1/persistentvolumes", body)
    t.get(f"/api/v1/persistentvolumes/{name}", accept=TABLE, pick=lambda shown: shown["columnDefinitions"])


@case()
def storage_classes(t: Talk) -> None:
    name = t.own("class", "CLASS")
    body = {"metadata": {"name": name}, "provisioner": "contract.test/none"}
    _shown(t, "/apis/storage.k8s.io/v1/storageclasses", body, cluster=True)


@case()
def leases(t: Talk) -> None:
    place = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 1}
    spec |= {"acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z"}
    _shown(t, place, {"metadata": {"name": "a"}, "spec": spec})
    t.create(place, {"metadata": {"name": "b"}})
    t.normal._words = False
    t.create(place, {"metadata": {"name": "c"}, "spec": {"leaseDurationSeconds": 0}})


@case()
def disruption_budgets(t: Talk) -> None:
    place = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"no": "pod"}}}
    t.create(place, {"metadata": {"name": "a"}, "spec": spec})
    t.get(f"{place}/a", accept=TABLE, pick=lambda body: body["columnDefinitions"])
    t.normal._words = False
    t.create(place, {"metadata": {"name": "b"}, "spec": spec | {"maxUnavailable": 1}})
    t.create(place, {"metadata": {"name": "b"}, "spec": spec | {"minAvailable": -1}})


@case()
def priority_classes(t: Talk) -> None:
    place = "/apis/scheduling.k8s.io/v1/priorityclasses"
    name = t.own("priority", "PRIORITY")
    _shown(t, place, {"metadata": {"name": name}, "value": 100}, cluster=True)
    t.normal._words = False
    t.create(place, {"metadata": {"name": name}, "value": 2_000_000_001})
    t.create(place, {"metadata": {"name": "system-own"}, "value": 1})


@case()
def network_policies(t: Talk) -> None:
    place = "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies"
    ingress = [{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": 80}]}]
    _shown(t, place, {"metadata": {"name": "a"}, "spec": {"podSelector": {}, "ingress": ingress}})
    _shown(t, place, {"metadata": {"name": "b"}, "spec": {"podSelector": {"matchLabels": {"x": "y"}}}})


@case()
def limits_and_quotas(t: Talk) -> None:
    limits = [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}]
    _shown(t, f"{CORE}/limitranges", {"metadata": {"name": "a"}, "spec": {"limits": limits}})
    t.create(f"{CORE}/resourcequotas", {"metadata": {"name": "a"}, "spec": {"hard": {"pods": "10"}}})


@case()
def roles_and_bindings(t: Talk) -> None:
    base = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subjects = [{"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]
    _shown(t, f"{base}/namespaces/{{ns}}/roles", {"metadata": {"name": "a"}, "rules": rules})
    binding = {"metadata": {"name": "a"}, "roleRef": ref, "subjects": subjects}
    _shown(t, f"{base}/namespaces/{{ns}}/rolebindings", binding)
    name = t.own("role", "ROLE")
    _shown(t, f"{base}/clusterroles", {"metadata": {"name": name}, "rules": rules}, cluster=True)
    _shown(t, f"{base}/clusterrolebindings", binding | {"metadata": {"name": name}}, cluster=True)


@case()
def endpoint_slices(t: Talk) -> None:
    place = "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices"
    body = {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.33"]}]}
    _shown(t, place, body | {"ports": [{"port": 80}]})


@case()
def revisions(t: Talk) -> None:
    place = "/apis/apps/v1/namespaces/{ns}/controllerrevisions"
    _shown(t, place, {"metadata": {"name": "a"}, "revision": 3, "data": {"spec": {"any": "thing"}}})


@case()
def nodes(t: Talk) -> None:
    name = t.own("node", "NODE")
    t.undo(f"/api/v1/nodes/{name}")

    def shown(body: Any) -> Any:
        return {k: v for k, v in body.items() if k != "spec"}

    t.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}}, pick=shown)
    status = {"status": {"capacity": {"cpu": "2"}}}
    t.patch(f"/api/v1/nodes/{name}/status", status, pick=lambda body: body["status"])
    t.get(f"/api/v1/nodes/{name}", accept=TABLE, pick=lambda body: body["columnDefinitions"])


@case()
def namespaces(t: Talk) -> None:
    t.get("/api/v1/namespaces/{ns}")
    t.get("/api/v1/namespaces/{ns}", accept=TABLE)
    t.patch("/api/v1/namespaces/{ns}", {"metadata": {"labels": {"kubernetes.io/metadata.name": "other"}}})
    t.patch("/api/v1/namespaces/{ns}", {"spec": {"finalizers": []}})
    t.patch("/api/v1/namespaces/{ns}/status", {"status": {"phase": "Terminating"}}, pick=lambda body: body["status"])
    t.patch("/api/v1/namespaces/{ns}/status", {"status": {"phase": "Active"}}, pick=lambda body: body["status"])
    t.get("/api/v1/namespaces?fieldSelector=metadata.name%3D{ns}", pick=lambda body: len(body["items"]))
    t.get("/api/v1/namespaces/{ns}/serviceaccounts/default")
    t.get("/api/v1/namespaces/{ns}/configmaps/kube-root-ca.crt", pick=lambda body: sorted(body["data"]))


@case()
def unknown_fields(t: Talk) -> None:
    t.create(f"{CORE}/configmaps", {"metadata": {"name": "a", "odd": 1}, "dota": {}})
    t.create(f"{CORE}/configmaps?fieldValidation=Strict", {"metadata": {"name": "b", "odd": 1}, "dota": {}})
    t.create(f"{CORE}/configmaps?fieldValidation=Ignore", {"metadata": {"name": "c"}, "dota": {}})
    duplicated = b'{"metadata":{"name":"d"},"data":{"k":"1"},"data":{"l":"2"}}'
    t.create(f"{CORE}/configmaps?fieldValidation=Strict", duplicated)
    t.create(f"{CORE}/configmaps", duplicated)


@case()
def dry_runs(t: Talk) -> None:
    t.create(f"{CORE}/configmaps?dryRun=All", {"metadata": {"name": "a"}})
    t.get(f"{CORE}/configmaps/a")
    t.create(f"{CORE}/configmaps?dryRun=Some", {"metadata": {"name": "a"}})
    made = t.given(f"{CORE}/configmaps", {"metadata": {"name": "a"}})
    t.create(f"{CORE}/configmaps?dryRun=All", {"metadata": {"name": "a"}})
    t.patch(f"{CORE}/configmaps/a?dryRun=All", {"data": {"k": "v"}})
    t.update(f"{CORE}/configmaps/a?dryRun=All", made.body | {"data": {"k": "v"}})
    t.create(f"{CORE}/configmaps?dryRun=All", {"metadata": {"generateName": "made-"}})
    t.get(f"{CORE}/configmaps/a")
