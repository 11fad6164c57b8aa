"""What virt-local would not do for a Service is refused at the door.

Services have addresses, ports of the machine and names here. What has no meaning on one machine, or would give a tenant
a part of it that is not his, is told with the way out.
"""

from __future__ import annotations

from virt_core.apis.names import INSTALL_NAMESPACE
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Object


def refuse_idle_service(request: AdmissionRequest) -> None:
    """On an update only what is new: a Service that is there may be labelled, and deleted."""
    if request.object is None or request.namespace == INSTALL_NAMESPACE:
        return
    spec = request.object.get("spec") or {}
    why = idle(spec)
    if why and (request.old_object is None or why != idle(request.old_object.get("spec") or {})):
        raise errors.forbidden("services", "", request.name, why)


def idle(spec: Object) -> str:
    """The first thing in it on which nobody would act; empty when all of it works."""
    if spec.get("type") == "ExternalName":
        return "spec.type ExternalName: virt-local's name server answers with addresses only; use the name itself"
    if spec.get("externalIPs"):
        return (
            "spec.externalIPs: an address of the machine's network is not a Service's to take; use spec.type NodePort"
        )
    for name in ("loadBalancerIP", "loadBalancerSourceRanges", "loadBalancerClass", "healthCheckNodePort"):
        if spec.get(name):
            return f"spec.{name}: virt-local has no load balancer; use spec.type NodePort"
    for index, port in enumerate(spec.get("ports") or ()):
        if port.get("protocol") == "SCTP":
            return f"spec.ports[{index}].protocol SCTP: virt-local carries TCP and UDP for Services"
    return ""


def warnings_about(request: AdmissionRequest) -> list[str]:
    if request.object is not None and (request.object.get("spec") or {}).get("type") == "LoadBalancer":
        return ["virt-local has no load balancer: the external address stays pending, the node ports work"]
    return []
