"""The roles that every cluster has, as one table: what virt-local's own parts and its users can bind to.

They are built in, not a copy of another system's list: only what is served here is named.
"""

from __future__ import annotations

from virt_local.apiserver.hooks import Object

_GROUP = "rbac.authorization.k8s.io"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete", "deletecollection"]
_LABEL = "kubernetes.io/bootstrapping"

_VIEWED = ["pods", "pods/log", "pods/status", "services", "endpoints", "configmaps", "events", "serviceaccounts"]
_VIEWED += ["limitranges", "resourcequotas", "resourcequotas/status"]
_VIEWED += ["persistentvolumeclaims", "persistentvolumeclaims/status", "namespaces", "namespaces/status"]
_EDITED = ["pods", "services", "endpoints", "configmaps", "secrets", "serviceaccounts", "persistentvolumeclaims"]
_STREAMS = ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy"]
_APPS = ["deployments", "replicasets", "statefulsets", "daemonsets", "controllerrevisions"]


def bootstrap_objects() -> list[Object]:
    """ClusterRoles, Roles and their bindings, in an order in which they can be created."""
    return [*_cluster_roles(), *_cluster_bindings()]


def _cluster_roles() -> list[Object]:
    return [
        _role("cluster-admin", [_rule(["*"], ["*"], ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}]),
        _role("system:discovery", [_urls(["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH])]),
        _role("system:public-info-viewer", [_urls(_HEALTH)]),
        _role("system:basic-user", _basic_user()),
        _role("system:auth-delegator", _delegator()),
        _role("system:kube-controller-manager", [_rule(["*"], ["*"], ["*"]), _urls(["*"])]),
        _aggregate("view", ["view"]),
        _aggregate("edit", ["edit", "view"]),
        _aggregate("admin", ["admin", "edit", "view"]),
        _role("system:aggregate-to-view", _view(), "view"),
        _role("system:aggregate-to-edit", _edit(), "edit"),
        _role("system:aggregate-to-admin", _admin(), "admin"),
    ]


_HEALTH = ["/healthz", "/livez", "/readyz", "/version", "/version/"]


def _cluster_bindings() -> list[Object]:
    return [
        _binding("cluster-admin", "Group", "system:masters"),
        _binding("system:discovery", "Group", "system:authenticated"),
        _binding("system:basic-user", "Group", "system:authenticated"),
        _binding("system:public-info-viewer", "Group", "system:authenticated", "system:unauthenticated"),
        _binding("system:kube-controller-manager", "User", "system:kube-controller-manager"),
    ]


def _basic_user() -> list[Object]:
    reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
    return [
        _rule(["create"], ["authorization.k8s.io"], reviews),
        _rule(["create"], ["authentication.k8s.io"], ["selfsubjectreviews"]),
    ]


def _delegator() -> list[Object]:
    return [
        _rule(["create"], ["authentication.k8s.io"], ["tokenreviews"]),
        _rule(["create"], ["authorization.k8s.io"], ["subjectaccessreviews"]),
    ]


def _view() -> list[Object]:
    return [
        _rule(_READ, [""], _VIEWED),
        _rule(_READ, ["apps"], _APPS),
        _rule(_READ, ["policy"], ["poddisruptionbudgets"]),
        _rule(_READ, ["discovery.k8s.io"], ["endpointslices"]),
        _rule(_READ, ["networking.k8s.io"], ["networkpolicies"]),
        _rule(_READ, ["events.k8s.io"], ["events"]),
    ]


def _edit() -> list[Object]:
    return [
        _rule(_WRITE, [""], _EDITED),
        _rule(_READ, [""], ["secrets"]),
        _rule(["create", "get"], [""], _STREAMS),
        _rule(["create"], [""], ["pods/eviction", "serviceaccounts/token"]),
        _rule(["impersonate"], [""], ["serviceaccounts"]),
        _rule(_WRITE, ["apps"], _APPS),
        _rule(_WRITE, ["policy"], ["poddisruptionbudgets"]),
        _rule(_WRITE, ["networking.k8s.io"], ["networkpolicies"]),
    ]


def _admin() -> list[Object]:
    return [
        _rule([*_READ, *_WRITE], [_GROUP], ["roles", "rolebindings"]),
        _rule(["create"], ["authorization.k8s.io"], ["localsubjectaccessreviews"]),
    ]


def _rule(verbs: list[str], groups: list[str], resources: list[str]) -> Object:
    return {"verbs": verbs, "apiGroups": groups, "resources": resources}


def _urls(urls: list[str]) -> Object:
    return {"verbs": ["get"] if urls != ["*"] else ["*"], "nonResourceURLs": urls}


def _role(name: str, rules: list[Object], aggregated_to: str = "") -> Object:
    labels = {_LABEL: "rbac-defaults"}
    if aggregated_to:
        labels[f"{_GROUP}/aggregate-to-{aggregated_to}"] = "true"
    return _object("ClusterRole", name, labels) | {"rules": rules}


def _aggregate(name: str, sources: list[str]) -> Object:
    selectors = [{"matchLabels": {f"{_GROUP}/aggregate-to-{source}": "true"}} for source in sources]
    return _object("ClusterRole", name, {_LABEL: "rbac-defaults"}) | {
        "aggregationRule": {"clusterRoleSelectors": selectors},
        "rules": [],
    }


def _binding(role: str, kind: str, *names: str) -> Object:
    return _object("ClusterRoleBinding", role, {_LABEL: "rbac-defaults"}) | {
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": kind, "name": name} for name in names],
    }


def _object(kind: str, name: str, labels: dict[str, str]) -> Object:
    return {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": {"name": name, "labels": labels}}
