"""The API behind the Pod runtime's ports: Pods by an informer, status by JSON patch, objects by get."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from virt_core.apis.auth import TokenRequest, TokenRequestSpec, TokenRequestStatus
from virt_core.apis.base import decode
from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.podnetworks import NetworkAttachmentDefinition
from virt_core.apis.pods import Pod, PodStatus
from virt_core.apis.registry import UnusableName, encode_object, segment
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.errors import ApiError, Conflict, Invalid, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import JsonPatch, op
from virt_core.kube.writes import OwnWrites, difference
from virt_core.runtime.logs import get_logger
from virt_local.node.networks.vocabulary import NetworkError
from virt_local.node.volumes.base import VolumeError

log = get_logger(__name__)

T = TypeVar("T", bound=KubeObject)

_STATUS_LISTS = ("/status/containerStatuses", "/status/initContainerStatuses")
_REQUIRED = {"ready": False, "restartCount": 0, "image": "", "imageID": ""}


class ApiPods:
    """PodSource and StatusSink over the API server."""

    def __init__(self, client: KubeClient, node_name: str) -> None:
        self._client = client
        self._own = OwnWrites[Pod]()
        self._informer: Informer[Pod] = Informer(
            client,
            Pod,
            field_selector=f"spec.nodeName={node_name}",
            indexers={"uid": lambda pod: [pod.metadata.uid]},
        )

    def on_change(self, enqueue: Callable[[str], None]) -> None:
        self._informer.add_handler(
            on_add=lambda pod: enqueue(pod.metadata.uid),
            on_update=lambda _old, pod: enqueue(pod.metadata.uid),
            on_delete=lambda pod: enqueue(pod.metadata.uid),
        )

    def run(self, stop: threading.Event) -> None:
        self._informer.run(stop)

    def synced(self) -> bool:
        return self._informer.has_synced()

    def get(self, uid: str) -> Pod | None:
        found = self._informer.by_index("uid", uid)
        if not found:
            self._own.forget(uid)
            return None
        return self._own.freshest(found[0])

    def uids(self) -> set[str]:
        return {pod.metadata.uid for pod in self._informer.list()}

    def find(self, namespace: str, name: str) -> Pod | None:
        return self._informer.get(f"{namespace}/{name}")

    def all(self) -> list[Pod]:
        return self._informer.list()

    def publish(self, pod: Pod, status: PodStatus, annotations: dict[str, str] | None = None) -> Pod:
        """Fails with Conflict when the Pod has changed meanwhile; the caller then decides anew on the new one."""
        meta = pod.metadata
        told = meta if annotations is None else replace(meta, annotations=annotations)
        fresh = Pod(metadata=told, spec=pod.spec, status=status)
        operations = [_complete(operation) for operation in difference(pod, fresh)]
        guard = [op.test("/metadata/uid", meta.uid), op.test("/metadata/resourceVersion", meta.resource_version)]
        try:
            written = self._client.patch(
                Pod, meta.name, meta.namespace, JsonPatch([*guard, *operations]), subresource="status"
            )
        except NotFound:
            return fresh
        except Invalid as err:
            if err.causes:
                raise
            self._refresh(pod)
            raise Conflict(409, "Conflict", err.message) from err
        except Conflict:
            self._refresh(pod)
            raise
        self._own.remember(written)
        return written

    def delete(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid, grace_period_s=0)
        except (NotFound, Conflict):
            log.debug("the Pod's object has gone already", pod=meta.name, namespace=meta.namespace)

    def _refresh(self, pod: Pod) -> None:
        """Somebody wrote first: do not wait for the watch to show it."""
        try:
            fresh = self._client.get(Pod, pod.metadata.name, pod.metadata.namespace)
        except ApiError as err:
            log.debug("could not read a Pod again", pod=pod.metadata.name, error=str(err))
            return
        if fresh.metadata.uid == pod.metadata.uid:
            self._own.remember(fresh)


def _complete(operation: dict[str, Any]) -> dict[str, Any]:
    """Clients insist on some fields of a container's status even where they say nothing."""
    if operation["path"] in _STATUS_LISTS and operation["op"] != "remove":
        return {**operation, "value": [{**_REQUIRED, **status} for status in operation["value"]]}
    if operation["path"] == "/status" and operation["op"] != "remove":
        value = dict(operation["value"])
        for key in ("containerStatuses", "initContainerStatuses"):
            if key in value:
                value[key] = [{**_REQUIRED, **status} for status in value[key]]
        return {**operation, "value": value}
    return operation


class ApiObjects:
    """ObjectSource over the API server."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self._get(ConfigMap, name, namespace)

    def secret(self, namespace: str, name: str) -> Secret | None:
        return self._get(Secret, name, namespace)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self._get(PersistentVolumeClaim, name, namespace)

    def volume(self, name: str) -> PersistentVolume | None:
        return self._get(PersistentVolume, name, "")

    def network(self, namespace: str, name: str) -> NetworkAttachmentDefinition | None:
        try:
            return self._get(NetworkAttachmentDefinition, name, namespace)
        except (VolumeError, UnusableName) as err:
            raise NetworkError(str(err)) from err

    def token(self, namespace: str, account: str, request: TokenRequestSpec) -> TokenRequestStatus:
        body = encode_object(TokenRequest(spec=request))
        try:
            path = f"/api/v1/namespaces/{segment(namespace)}/serviceaccounts/{segment(account)}/token"
            return decode(self._client.raw("POST", path, body=body), TokenRequest).status
        except (ApiError, UnusableName) as err:
            raise VolumeError(f"no token for ServiceAccount {namespace}/{account}: {err}") from err

    def _get(self, cls: type[T], name: str, namespace: str) -> T | None:
        try:
            return self._client.get(cls, name, namespace)
        except NotFound:
            return None
        except ApiError as err:
            raise VolumeError(f"{cls.__name__} {namespace}/{name} cannot be read: {err}") from err
