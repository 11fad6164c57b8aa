"""Keeps the EndpointSlices of Services with a selector as `slices.py` says."""

from __future__ import annotations

from virt_core.apis.pods import Pod
from virt_core.apis.registry import key_of
from virt_core.apis.services import EndpointSlice, Service
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import AlreadyExists, NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.logs import get_logger
from virt_local.controllers.services.slices import MANAGED_BY, MANAGER, SERVICE_NAME, chooses, facts, same, slices_of

log = get_logger("virt-local.services")


class Endpoints:
    def __init__(
        self,
        client: KubeClient,
        services: Informer[Service],
        pods: Informer[Pod],
        slices: Informer[EndpointSlice],
    ) -> None:
        self._client = client
        self._services = services
        self._pods = pods
        self._slices = slices
        self.queue = WorkQueue(name="endpoints", max_delay_s=30.0)
        services.add_handler(on_add=self._on_service, on_update=lambda _, new: self._on_service(new))
        pods.add_handler(on_add=self._on_pod, on_update=self._on_pod_change, on_delete=self._on_pod)
        slices.add_handler(on_update=lambda _, new: self._on_slice(new), on_delete=self._on_slice)

    def controller(self) -> Controller:
        informers = (self._services, self._pods, self._slices)
        return Controller("endpoints", self.queue, self.reconcile, workers=1, informers=informers)

    def reconcile(self, key: str) -> Result | None:
        service = self._services.get(key)
        if service is None or not service.spec.selector or service.metadata.deletion_timestamp:
            return None  # What belonged to it is collected with it.
        wanted = {each.metadata.name: each for each in slices_of(service, self._chosen(service))}
        there = {each.metadata.name: each for each in self._slices.list() if _ours(each, service)}
        for name, piece in wanted.items():
            if name not in there:
                self._create(piece)
            elif not same(there[name], piece):
                piece.metadata.resource_version = there[name].metadata.resource_version
                self._client.replace(piece)
        for name in there.keys() - wanted.keys():
            self._remove(there[name])
        return None

    def _chosen(self, service: Service) -> list[Pod]:
        return [pod for pod in self._pods.list() if chooses(service, pod)]

    def _create(self, piece: EndpointSlice) -> None:
        try:
            self._client.create(piece)
        except AlreadyExists:
            # The informer is behind; or somebody has a slice of that name, which is not ours to change.
            log.warning("a slice of that name is already there", slice=key_of(piece))
        except NotFound:
            return  # The namespace is gone.

    def _remove(self, piece: EndpointSlice) -> None:
        try:
            self._client.delete(EndpointSlice, piece.metadata.name, piece.metadata.namespace, uid=piece.metadata.uid)
        except NotFound:
            return

    def _on_service(self, service: Service) -> None:
        if service.spec.selector:
            self.queue.add(key_of(service))

    def _on_pod(self, pod: Pod) -> None:
        for service in self._services.list():
            if chooses(service, pod):
                self.queue.add(key_of(service))

    def _on_pod_change(self, old: Pod, new: Pod) -> None:
        if facts(old) != facts(new):
            for pod in (old, new):
                self._on_pod(pod)

    def _on_slice(self, piece: EndpointSlice) -> None:
        name = piece.metadata.labels.get(SERVICE_NAME)
        if name and piece.metadata.labels.get(MANAGED_BY) == MANAGER:
            self.queue.add(f"{piece.metadata.namespace}/{name}")


def _ours(piece: EndpointSlice, service: Service) -> bool:
    labels = piece.metadata.labels
    same_place = piece.metadata.namespace == service.metadata.namespace
    return same_place and labels.get(SERVICE_NAME) == service.metadata.name and labels.get(MANAGED_BY) == MANAGER
