"""The admission chain: our own completions and checks first and last, the webhooks in between."""

from __future__ import annotations

from virt_local.apiserver.hooks import AdmissionRequest
from virt_local.apiserver.security import pod_security
from virt_local.apiserver.security.claim_admission import ClaimClasses
from virt_local.apiserver.security.escalation import check_rbac_write
from virt_local.apiserver.security.node_authorizer import restrict_node
from virt_local.apiserver.security.objects import Source
from virt_local.apiserver.security.own_policies import confine
from virt_local.apiserver.security.pod_admission import complete_pod, complete_update
from virt_local.apiserver.security.rbac import RbacIndex
from virt_local.apiserver.security.service_admission import refuse_idle_service, warnings_about
from virt_local.apiserver.security.webhooks.dispatch import Webhooks


class Admission:
    """Implements hooks.Admission."""

    def __init__(self, source: Source, index: RbacIndex, webhooks: Webhooks, *, idle_services: bool = True) -> None:
        self._source = source
        self._claim_classes = ClaimClasses(source)
        self._idle_services = idle_services
        self._index = index
        self._webhooks = webhooks

    async def mutate(self, request: AdmissionRequest) -> None:
        if _creates_pod(request):
            complete_pod(self._source, request)
        elif (request.operation, request.group, request.resource, request.subresource) == ("UPDATE", "", "pods", ""):
            complete_update(request)
        elif _writes(request, "persistentvolumeclaims") and request.operation == "CREATE":
            self._claim_classes.complete(request)
        await self._webhooks.mutate(request)

    async def validate(self, request: AdmissionRequest) -> None:
        restrict_node(self._source, request)
        confine(request)
        check_rbac_write(self._index, request)
        if _creates_pod(request):
            self._pod_security(request)
        if _writes(request, "persistentvolumeclaims") and request.operation == "UPDATE":
            self._claim_classes.check_growth(request)
        if _writes(request, "services") and not self._idle_services:
            refuse_idle_service(request)
            request.warnings.extend(warnings_about(request))
        await self._webhooks.validate(request)

    def _pod_security(self, request: AdmissionRequest) -> None:
        namespace = self._source.get("namespaces", "", request.namespace)
        if namespace is not None:
            pod_security.enforce(namespace.labels, request)


def _writes(request: AdmissionRequest, resource: str) -> bool:
    return (request.group, request.resource, request.subresource) == ("", resource, "")


def _creates_pod(request: AdmissionRequest) -> bool:
    return (request.operation, request.group, request.resource, request.subresource) == ("CREATE", "", "pods", "")
