"""Asks the API server for other resources of a running Pod: its subresource `resize`."""

from __future__ import annotations

from typing import Any

from virt_controller.vmi import resize
from virt_core.apis import names
from virt_core.apis.podparts import ResourceRequirements
from virt_core.apis.pods import Pod
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import ApiError, NotFound
from virt_core.kube.patch import JsonPatch, op, pointer

#: Bad Request, Forbidden (also by a quota), Method Not Allowed, Unprocessable Entity.
_REFUSALS = (400, 403, 405, 422)
_TOO_OLD = "this cluster cannot change the resources of a running Pod; Kubernetes 1.33 and newer can"


def resized(client: KubeClient, pod: Pod, wanted: ResourceRequirements) -> resize.Resizing:
    """What the API server refuses is told; what it could not answer is raised, and tried again."""
    if not resize.is_changed(pod, wanted):
        return resize.Resizing(pod, wanted)
    patch, meta = JsonPatch(_operations(pod, wanted)), pod.metadata
    try:
        pod = client.patch(Pod, meta.name, meta.namespace, patch, subresource="resize")
    except NotFound as error:
        # Of a Pod that has gone, an event is on its way.
        return resize.Resizing(pod, wanted, "" if error.details.name == meta.name else _TOO_OLD)
    except ApiError as error:
        if error.status not in _REFUSALS:
            raise
        return resize.Resizing(pod, wanted, str(error))
    return resize.Resizing(pod, wanted)


def _operations(pod: Pod, wanted: ResourceRequirements) -> list[dict[str, Any]]:
    index = next(i for i, each in enumerate(pod.spec.containers) if each.name == names.CONTAINER_COMPUTE)
    place = ("spec", "containers", str(index))
    tests = [op.test("/metadata/uid", pod.metadata.uid), op.test(pointer(*place, "name"), names.CONTAINER_COMPUTE)]
    amounts = {"requests": wanted.requests, "limits": wanted.limits}
    return tests + [
        op.replace(pointer(*place, "resources", kind, name), values[name])
        for kind, values in amounts.items()
        for name in resize.RESOURCES
        if name in values
    ]
