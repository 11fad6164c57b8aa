"""What a new Pod gets before anybody looks at it: an account with its token, a priority, default tolerations."""

from __future__ import annotations

import secrets
from typing import Any

from virt_core.apis import names
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Object
from virt_local.apiserver.security.objects import Source

TOKEN_DIR = names.PATH_SERVICE_ACCOUNT
_TOKEN_SECONDS = 3607
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"


def complete_pod(source: Source, request: AdmissionRequest) -> None:
    """Fills the new Pod in place."""
    pod = request.object
    if pod is None:
        return
    spec = pod.setdefault("spec", {})
    _service_account(source, request, spec)
    _priority(source, request, spec)
    _tolerations(spec)


def complete_update(request: AdmissionRequest) -> None:
    """Tolerations that the client's list left out come back."""
    if request.object is not None:
        _tolerations(request.object.setdefault("spec", {}))


def _service_account(source: Source, request: AdmissionRequest, spec: Object) -> None:
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    record = source.get("serviceaccounts", request.namespace, name)
    if record is None:
        why = f'error looking up service account {request.namespace}/{name}: serviceaccount "{name}" not found'
        raise errors.forbidden("pods", "", request.name, why)
    account = record.object()
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = account["imagePullSecrets"]
    if _wants_token(spec, account):
        _mount_token(spec)


def _wants_token(spec: Object, account: Object) -> bool:
    for wish in (spec.get("automountServiceAccountToken"), account.get("automountServiceAccountToken")):
        if wish is not None:
            return bool(wish)
    return True


def _mount_token(spec: Object) -> None:
    """Every container that does not mount something there itself."""
    needing = [
        container
        for key in ("initContainers", "containers")
        for container in spec.get(key) or ()
        if all(mount.get("mountPath") != TOKEN_DIR for mount in container.get("volumeMounts") or ())
    ]
    if not needing:
        return
    volume = f"kube-api-access-{''.join(secrets.choice(_ALPHABET) for _ in range(5))}"
    spec.setdefault("volumes", []).append({"name": volume, "projected": _token_projection()})
    for container in needing:
        mount = {"name": volume, "mountPath": TOKEN_DIR, "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)


def _token_projection() -> Object:
    authority = {"key": names.TLS_CA_FILE, "path": names.TLS_CA_FILE}
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [authority]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
    }


def _priority(source: Source, request: AdmissionRequest, spec: Object) -> None:
    name = spec.get("priorityClassName", "")
    chosen = _priority_class(source, request, name) if name else _default_class(source)
    value = int(chosen.get("value", 0))
    if spec.get("priority") not in (None, value):
        why = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
        why += "priority admission controller computed "
        why += f"{value} from the given PriorityClass name"
        raise errors.forbidden("pods", "", request.name, why)
    if chosen.get("name"):
        spec["priorityClassName"] = chosen["name"]
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy", "PreemptLowerPriority"))


def _priority_class(source: Source, request: AdmissionRequest, name: str) -> dict[str, Any]:
    if name in _SYSTEM_PRIORITIES:
        return {"name": name, "value": _SYSTEM_PRIORITIES[name]}
    record = source.get(_PRIORITY_CLASSES, "", name)
    if record is None:
        raise errors.forbidden("pods", "", request.name, f"no PriorityClass with name {name} was found")
    return {**record.object(), "name": name}


def _default_class(source: Source) -> dict[str, Any]:
    defaults = [obj for record in source.list(_PRIORITY_CLASSES) if (obj := record.object()).get("globalDefault")]
    if not defaults:
        return {}
    lowest = min(defaults, key=lambda each: int(each.get("value", 0)))
    return {**lowest, "name": lowest["metadata"]["name"]}


def _tolerations(spec: Object) -> None:
    """A node that is away for a moment costs no Pod: five minutes of patience unless the Pod says otherwise."""
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _covers(toleration: Object, key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")
