"""The way from `virt_core.instancetype` to a cluster: from caches where there are some, else by asking."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

from virt_core.apis.instancetype import (
    VirtualMachineClusterInstancetype,
    VirtualMachineClusterPreference,
    VirtualMachineInstancetype,
    VirtualMachinePreference,
)
from virt_core.apis.registry import UnusableName, key_for, segment
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer

T = TypeVar("T")

CACHED = (
    VirtualMachineInstancetype,
    VirtualMachineClusterInstancetype,
    VirtualMachinePreference,
    VirtualMachineClusterPreference,
)
#: kind → where its add-on serves it
_DOCUMENTS = {
    "DataVolume": "/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datavolumes/{}",
    "DataSource": "/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datasources/{}",
    "VolumeSnapshot": "/apis/snapshot.storage.k8s.io/v1/namespaces/{}/volumesnapshots/{}",
}


class KubeLookup:
    """Asks the API server each time."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        try:
            found: Any = self._client.get(cls, name, namespace)  # type: ignore[type-var]
        except NotFound:
            return None
        typed: T = found
        return typed

    def document(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        try:
            body = self._client.raw("GET", _DOCUMENTS[kind].format(segment(namespace), segment(name)))
        except (NotFound, UnusableName):
            return None
        document: dict[str, Any] = msgspec.json.decode(body)
        return document


class CachedLookup(KubeLookup):
    """Keeps instance types and preferences; asks for what is not there yet, since it may have come a moment ago."""

    def __init__(self, client: KubeClient) -> None:
        super().__init__(client)
        self._informers: dict[type, Informer[Any]] = {cls: Informer(client, cls) for cls in CACHED}

    @property
    def informers(self) -> list[Informer[Any]]:
        """For handlers, and for who waits until they have synced."""
        return list(self._informers.values())

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        informer = self._informers.get(cls)
        cached: T | None = informer.get(key_for(namespace, name)) if informer is not None else None
        return cached if cached is not None else super().get(cls, name, namespace)

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop."""
        threads = [
            threading.Thread(target=informer.run, args=(stop,), name=f"informer-{cls.__name__}", daemon=True)
            for cls, informer in self._informers.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
