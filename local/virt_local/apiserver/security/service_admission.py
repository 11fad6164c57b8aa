"""Services that nothing here would act on are refused at the door.

virt-local has no kube-proxy, no endpoints controller and no DNS. The one thing that works is a Service whose
EndpointSlices somebody writes by hand: the API server reaches webhooks and aggregated APIs by it, also virt-api's.
"""

from __future__ import annotations

from virt_core.apis.names import INSTALL_NAMESPACE
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Object

_INSTEAD = (
    "reach a guest at the address that `kubectl get vmi` shows, or with `virtctl port-forward`, `virtctl ssh` or "
    "`virtctl console`"
)


def refuse_idle_service(request: AdmissionRequest) -> None:
    """On an update only what is new: a Service that is there may be labelled, and deleted."""
    if request.object is None or request.namespace == INSTALL_NAMESPACE:
        return
    why = idle(request.object.get("spec") or {})
    if not why or (request.old_object is not None and why == idle(request.old_object.get("spec") or {})):
        return
    raise errors.forbidden("services", "", request.name, f"{why}; {_INSTEAD}")


def idle(spec: Object) -> str:
    """Why nobody would ever get an answer from this Service; empty when somebody might."""
    kind = spec.get("type") or "ClusterIP"
    if kind == "ExternalName":
        return "spec.type ExternalName: virt-local has no DNS server that would answer with it"
    if kind != "ClusterIP":
        return f"spec.type {kind}: virt-local gives Services no address on the machine's network"
    if spec.get("selector"):
        return "spec.selector: virt-local connects no Service with Pods, so this one would never have endpoints"
    return ""
