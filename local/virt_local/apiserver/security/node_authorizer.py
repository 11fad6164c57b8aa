"""What a node may do: its own Node, Lease and Pods, and only the Secrets and ConfigMaps that its Pods use.

The authorizer answers what the request's address tells; the admission check answers what only the object tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from virt_core.apis.names import EXTRA_NODE_NAME
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Attributes, Decision, Object, User
from virt_local.apiserver.security.objects import Source

NODES_GROUP = "system:nodes"
_PREFIX = "system:node:"
_READ = frozenset(("get", "list", "watch"))
#: Accounts of ours that run once on each node and may only speak for the node that their token names.
NODE_BOUND_ACCOUNTS = frozenset(("system:serviceaccount:virtpod:virt-handler",))

#: (group, resource) → verbs that need no look at the name.
_ANYWHERE: dict[tuple[str, str], frozenset[str]] = {
    ("", "pods"): _READ | {"delete"},
    ("", "pods/status"): frozenset(("update", "patch", "get")),
    ("", "nodes"): _READ | {"create"},
    ("", "services"): _READ,
    ("", "namespaces"): _READ,
    ("", "serviceaccounts"): frozenset(("get",)),
    ("", "serviceaccounts/token"): frozenset(("create",)),
    ("", "events"): frozenset(("create", "patch", "update")),
    ("", "persistentvolumes"): _READ,
    ("", "persistentvolumeclaims"): _READ,
    ("events.k8s.io", "events"): frozenset(("create", "patch", "update")),
    ("storage.k8s.io", "storageclasses"): _READ,
    ("k8s.cni.cncf.io", "network-attachment-definitions"): frozenset(("get",)),
    ("authentication.k8s.io", "tokenreviews"): frozenset(("create",)),
    ("authorization.k8s.io", "subjectaccessreviews"): frozenset(("create",)),
}
_OWN: dict[tuple[str, str], frozenset[str]] = {
    ("", "nodes"): frozenset(("update", "patch", "delete")),
    ("", "nodes/status"): frozenset(("update", "patch")),
    ("coordination.k8s.io", "leases"): _READ | {"create", "update", "patch", "delete"},
}


def node_name(user: User) -> str:
    """The node that a user is, or nothing."""
    return user.name.removeprefix(_PREFIX) if user.name.startswith(_PREFIX) and NODES_GROUP in user.groups else ""


def authorize_node(source: Source, user: User, asked: Attributes) -> Decision:
    node = node_name(user)
    if not node or not asked.is_resource:
        return Decision(False)
    target = (asked.group, f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource)
    if asked.verb in _ANYWHERE.get(target, ()):
        return Decision(True, "node authorizer")
    if asked.verb in _OWN.get(target, ()) and (asked.name == node or (asked.verb == "create" and not asked.name)):
        return Decision(True, "node authorizer")
    if target in (("", "secrets"), ("", "configmaps")) and asked.verb in _READ and asked.name:
        return _used_by_node(source, node, asked)
    return Decision(False)


def _used_by_node(source: Source, node: str, asked: Attributes) -> Decision:
    for record in source.list("pods", asked.namespace):
        if record.fields.get("spec.nodeName", node) != node:
            continue
        pod = record.object()
        if pod["spec"].get("nodeName") == node and (asked.resource, asked.name) in set(_references(pod)):
            return Decision(True, "node authorizer")
    why = f'no relationship found between node "{node}" and this object'
    return Decision(False, why)


def _references(pod: Object) -> Iterator[tuple[str, str]]:
    """(resource, name) of every Secret and ConfigMap that a Pod uses."""
    spec = pod["spec"]
    for secret in spec.get("imagePullSecrets") or ():
        yield "secrets", secret.get("name", "")
    for volume in spec.get("volumes") or ():
        yield from _volume_references(volume)
        for projected in (volume.get("projected") or {}).get("sources") or ():
            yield from _volume_references(projected)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for source in container.get("envFrom") or ():
            yield "secrets", (source.get("secretRef") or {}).get("name", "")
            yield "configmaps", (source.get("configMapRef") or {}).get("name", "")
        for variable in container.get("env") or ():
            value = variable.get("valueFrom") or {}
            yield "secrets", (value.get("secretKeyRef") or {}).get("name", "")
            yield "configmaps", (value.get("configMapKeyRef") or {}).get("name", "")


def _volume_references(volume: Object) -> Iterator[tuple[str, str]]:
    secret = volume.get("secret") or {}
    yield "secrets", secret.get("secretName") or secret.get("name", "")
    yield "configmaps", (volume.get("configMap") or {}).get("name", "")


def restrict_node(source: Source, request: AdmissionRequest) -> None:
    """Raises Forbidden when a node, or an account of ours that is bound to one, touches what belongs to another."""
    _restrict_bound_account(request)
    node = node_name(request.user)
    if not node:
        return
    if request.resource == "nodes" and request.group == "" and request.name != node:
        raise errors.forbidden(
            "nodes", "", request.name, f'node "{node}" is not allowed to modify node "{request.name}"'
        )
    if request.resource == "pods" and request.group == "":
        _restrict_pod(node, request)
    if request.resource == "serviceaccounts" and request.subresource == "token":
        _restrict_token(source, node, request)


def _restrict_bound_account(request: AdmissionRequest) -> None:
    if request.user.name not in NODE_BOUND_ACCOUNTS or request.resource != "nodes" or request.group:
        return
    own = request.user.extra.get(EXTRA_NODE_NAME, ())
    if request.name not in own:
        why = f"{request.user.name} may only change the node that its token is bound to ({', '.join(own) or 'none'})"
        raise errors.forbidden("nodes", "", request.name, why)


def _restrict_pod(node: str, request: AdmissionRequest) -> None:
    pod = request.old_object or request.object or {}
    if request.operation == "CREATE" and not request.subresource:
        raise errors.forbidden("pods", "", request.name, f'node "{node}" can only create mirror pods')
    if (pod.get("spec") or {}).get("nodeName") != node:
        why = f'node "{node}" can only change pods with spec.nodeName set to itself'
        raise errors.forbidden("pods", "", request.name, why)


def _restrict_token(source: Source, node: str, request: AdmissionRequest) -> None:
    ref = ((request.object or {}).get("spec") or {}).get("boundObjectRef") or {}
    record = source.get("pods", request.namespace, ref.get("name", "")) if ref.get("kind") == "Pod" else None
    if record is None or record.uid != ref.get("uid") or record.object()["spec"].get("nodeName") != node:
        why = f'node "{node}" may only request tokens bound to a pod that runs on it'
        raise errors.forbidden("serviceaccounts", "", request.name, why)
