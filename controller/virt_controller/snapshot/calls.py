"""What is asked of running machines through virt-api: to freeze, to thaw, to stop."""

from __future__ import annotations

import math

from virt_core.apis.base import encode
from virt_core.apis.names import SUBRESOURCE_GROUP
from virt_core.apis.registry import resource_of
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient

#: A guest writes all that it has in memory before its file systems stand still.
_FREEZE_S = 60.0


class Calls:
    """Raises ApiError."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def freeze(self, vmi: VirtualMachineInstance, seconds: float) -> None:
        body = {"unfreezeTimeout": f"{math.ceil(seconds)}s"}
        self._client.raw("PUT", _path(vmi, "freeze"), body=encode(body), timeout_s=_FREEZE_S)

    def thaw(self, vmi: VirtualMachineInstance) -> None:
        self._client.raw("PUT", _path(vmi, "unfreeze"), timeout_s=_FREEZE_S)

    def stop(self, vm: VirtualMachine) -> None:
        self._client.raw("PUT", _path(vm, "stop"))


def _path(obj: VirtualMachine | VirtualMachineInstance, subresource: str) -> str:
    meta, plain = obj.metadata, resource_of(type(obj))
    path = plain.path(meta.namespace, meta.name, subresource)
    return path.replace(plain.root, f"/apis/{SUBRESOURCE_GROUP}/v1", 1)
