"""What the server itself writes into a Service: which families it has, and what an update keeps or gives back. Pure."""

from __future__ import annotations

import ipaddress
from typing import Any

from virt_local.apiserver.errors import Cause
from virt_local.apiserver.schema.validate import bad_value

Object = dict[str, Any]

NONE = "None"
BOTH = ["IPv4", "IPv6"]
_DUAL = ("PreferDualStack", "RequireDualStack")


def needs_address(spec: Object) -> bool:
    return spec.get("type") != "ExternalName" and spec.get("clusterIP") != NONE


def needs_node_ports(spec: Object) -> bool:
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort"


def choose_families(spec: Object, served: list[str]) -> list[Cause]:
    """One family unless more are asked for, or nobody routes to the Service anyway: then both are possible."""
    if spec.get("type") == "ExternalName":
        return []
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    free = spec.get("clusterIP") == NONE and not spec.get("selector")
    given = [family for family in map(_family, spec.get("clusterIPs") or ()) if family]
    default = "RequireDualStack" if free or len(given) > 1 or len(spec.get("ipFamilies") or ()) > 1 else "SingleStack"
    policy = spec.setdefault("ipFamilyPolicy", default)
    families = list(spec.get("ipFamilies") or given or served[:1])
    if free and policy in _DUAL and not spec.get("ipFamilies"):
        families = list(BOTH)
    elif policy in _DUAL and len(families) == 1:
        families += [family for family in served if family not in families]
    spec["ipFamilies"] = families
    return [] if free else _unserved(spec, families, served)


def _unserved(spec: Object, families: list[str], served: list[str]) -> list[Cause]:
    causes = [
        bad_value(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
        for index, family in enumerate(families)
        if family in BOTH and family not in served
    ]
    if spec["ipFamilyPolicy"] == "RequireDualStack" and len(families) < len(BOTH):
        why = "this cluster is not configured for dual-stack services"
        causes.append(bad_value("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], why))
    if spec["ipFamilyPolicy"] == "SingleStack" and len(families) > 1:
        why = "may only hold one value when ipFamilyPolicy is 'SingleStack'"
        causes.append(bad_value("spec.ipFamilies", families, why))
    return causes


def is_address(text: str) -> bool:
    """In its shortest form only: the same address in two forms would be taken twice."""
    try:
        return str(ipaddress.ip_address(text)) == text
    except ValueError:
        return False


def _family(text: str) -> str:
    try:
        return f"IPv{ipaddress.ip_address(text).version}"
    except ValueError:
        return ""


def keep_assigned(new: Object, old: Object) -> None:
    """Who writes a Service without what the server chose does not mean to give it back."""
    spec, before = new["spec"], old.get("spec") or {}
    if needs_address(spec) and needs_address(before):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name) and before.get(name):
                spec[name] = before[name]
        _follow_change(spec, before)
    if needs_node_ports(spec) and needs_node_ports(before):
        chosen = {_identity(port): port.get("nodePort") for port in before.get("ports") or ()}
        used = {port.get("nodePort") for port in spec.get("ports") or ()}
        for port in spec.get("ports") or ():
            known = chosen.get(_identity(port))
            if not port.get("nodePort") and known and known not in used:
                port["nodePort"] = known


def _follow_change(spec: Object, before: Object) -> None:
    """Who changes one of two fields that say the same changes both."""
    if spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"], *(before.get("clusterIPs") or ())[1:]]
    single = spec.get("ipFamilyPolicy") == "SingleStack" != before.get("ipFamilyPolicy")
    if single and spec.get("ipFamilies") == before.get("ipFamilies"):
        spec["ipFamilies"], spec["clusterIPs"] = spec["ipFamilies"][:1], (spec.get("clusterIPs") or [])[:1]


def drop_unneeded(new: Object, old: Object) -> None:
    """A Service that changes its type loses what belonged to the old one, unless its author just wrote it."""
    spec, before = new["spec"], old.get("spec") or {}
    if needs_address(before) and spec.get("type") == "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    if needs_node_ports(before) and not needs_node_ports(spec):
        chosen = {_identity(port): port.get("nodePort") for port in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            if port.get("nodePort") == chosen.get(_identity(port)):
                port.pop("nodePort", None)
    if before.get("type") in ("NodePort", "LoadBalancer") and spec.get("type") not in ("NodePort", "LoadBalancer"):
        _drop_same(spec, before, "externalTrafficPolicy")
    if before.get("type") == "LoadBalancer" != spec.get("type"):
        _drop_same(spec, before, "allocateLoadBalancerNodePorts")


def _drop_same(spec: Object, before: Object, name: str) -> None:
    if spec.get(name) == before.get(name):
        spec.pop(name, None)


def _identity(port: Object) -> tuple[object, object]:
    return port.get("protocol"), port.get("port")
