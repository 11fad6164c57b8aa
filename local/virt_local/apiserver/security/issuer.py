"""TokenRequest: signs a token for a ServiceAccount, bound to the Pod or node it is for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import Object
from virt_local.apiserver.security.objects import Source
from virt_local.apiserver.security.tokens import Signer

DEFAULT_SECONDS = 3600
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32


class TokenIssuer:
    """Implements hooks.TokenIssuer."""

    def __init__(self, source: Source, signer: Signer, issuer: str, now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._signer = signer
        self._issuer = issuer
        self._now = now

    async def issue(self, service_account: Object, request: Object) -> Object:
        spec = request.get("spec") or {}
        seconds = self._seconds(spec)
        audiences = spec.get("audiences") or [self._issuer]
        metadata = service_account["metadata"]
        bound = self._bound(spec.get("boundObjectRef"), service_account)
        now = int(self._now())
        claims = {
            "aud": audiences,
            "exp": now + seconds,
            "iat": now,
            "nbf": now,
            "iss": self._issuer,
            "jti": str(uuid.uuid4()),
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
            "kubernetes.io": {"namespace": metadata["namespace"], "serviceaccount": _ref(service_account), **bound},
        }
        status = {"token": self._signer.sign(claims), "expirationTimestamp": _rfc3339(now + seconds)}
        answered = {"boundObjectRef": None, **spec, "audiences": audiences, "expirationSeconds": seconds}
        about = {name: metadata[name] for name in ("name", "namespace", "uid")}
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {**about, "creationTimestamp": _rfc3339(now)},
            "spec": answered,
            "status": status,
        }

    def _seconds(self, spec: Object) -> int:
        seconds = spec.get("expirationSeconds", DEFAULT_SECONDS)
        why = ""
        if not isinstance(seconds, int) or seconds < MIN_SECONDS:
            why = "may not specify a duration less than 10 minutes"
        elif seconds > MAX_SECONDS:
            why = "may not specify a duration larger than 2^32 seconds"
        if why:
            cause = errors.Cause("spec.expirationSeconds", f"Invalid value: {seconds}: {why}")
            raise errors.invalid("TokenRequest", "authentication.k8s.io", "", [cause])
        return int(seconds)

    def _bound(self, ref: Object | None, account: Object) -> Object:
        if not ref:
            return {}
        kind, name, namespace = ref.get("kind", ""), ref.get("name", ""), account["metadata"]["namespace"]
        if kind == "Pod":
            pod = self._existing("pods", namespace, name, ref.get("uid", ""))
            if pod["spec"].get("serviceAccountName") != account["metadata"]["name"]:
                raise errors.bad_request(
                    f"cannot bind token for serviceaccount to pod {name!r} running as another account"
                )
            return {"pod": _ref(pod), **self._node_of(pod)}
        if kind == "Node":
            return {"node": _ref(self._existing("nodes", "", name, ref.get("uid", "")))}
        raise errors.bad_request(f"cannot bind token to object of type /{ref.get('apiVersion', '')}, Kind={kind}")

    def _node_of(self, pod: Object) -> Object:
        record = self._source.get("nodes", "", pod["spec"].get("nodeName") or "")
        return {"node": {"name": record.name, "uid": record.uid}} if record else {}

    def _existing(self, resource: str, namespace: str, name: str, uid: str) -> Object:
        record = self._source.get(resource, namespace, name)
        if record is None:
            raise errors.not_found(resource, "", name)
        if uid and uid != record.uid:
            why = f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            why += "The object might have been deleted and then recreated"
            raise errors.conflict({"pods": "Pod", "nodes": "Node"}[resource], "", name, why)
        return record.object()


def _ref(obj: Object) -> dict[str, str]:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def _rfc3339(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
