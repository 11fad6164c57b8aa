"""What makes a Service or an EndpointSlice invalid, in the words of kube-apiserver."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from virt_local.apiserver.builtins.service_fields import NONE, is_address
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.meta import is_dns_label, is_label_value, is_qualified_name, is_subdomain
from virt_local.apiserver.schema.validate import bad_value, forbidden, required, shown, unsupported

Object = dict[str, Any]

_TYPES = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
_PROTOCOLS = ["SCTP", "TCP", "UDP"]
_POLICIES = ["Cluster", "Local"]
_AFFINITIES = ["ClientIP", "None"]
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
_MOST_AFFINITY_S = 86400
#: As many as one slice of the real server may have.
_MOST_ENDPOINTS, _MOST_PORTS = 1000, 100


def check_service(service: Object, old: Object | None) -> list[Cause]:
    spec = service.get("spec") or {}
    kind = spec.get("type")
    causes: list[Cause] = []
    if kind not in _TYPES:
        causes.append(unsupported("spec.type", kind, _TYPES))
    ports = spec.get("ports") or []
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != NONE:
        causes.append(required("spec.ports"))
    causes += _check_type(spec, kind) + _check_ports(ports, kind) + _check_choices(spec)
    causes += _check_selector(spec.get("selector") or {}) + _check_addresses(spec)
    return causes + (_check_change(spec, (old.get("spec") or {})) if old is not None else [])


def _check_type(spec: Object, kind: object) -> list[Cause]:
    causes: list[Cause] = []
    if kind == "ExternalName":
        if not spec.get("externalName"):
            causes.append(required("spec.externalName"))
        elif not is_subdomain(str(spec["externalName"]).removesuffix(".")):
            causes.append(bad_value("spec.externalName", spec["externalName"], "must be a lowercase RFC 1123 name"))
        if spec.get("clusterIP"):
            causes.append(forbidden("spec.clusterIPs", "may not be set when `type` is 'ExternalName'"))
    if spec.get("clusterIP") == NONE and kind in ("NodePort", "LoadBalancer"):
        causes.append(bad_value("spec.clusterIPs[0]", NONE, f"may not be set to 'None' for {kind} services"))
    if kind not in ("NodePort", "LoadBalancer") and spec.get("externalTrafficPolicy"):
        why = "may only be set for externally-accessible services"
        causes.append(bad_value("spec.externalTrafficPolicy", spec["externalTrafficPolicy"], why))
    if kind != "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not None:
        causes.append(forbidden("spec.allocateLoadBalancerNodePorts", "may only be used when `type` is 'LoadBalancer'"))
    return causes


def _check_ports(ports: list[Object], kind: object) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[object, object]] = set()
    names: set[object] = set()
    open_ports: set[tuple[object, object]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        causes += _check_port(port, path, named=len(ports) > 1)
        identity = (port.get("protocol"), port.get("port"))
        if identity in seen:
            causes.append(Cause(path, f"Duplicate value: {shown(port)}", "FieldValueDuplicate"))
        if port.get("name") and port["name"] in names:
            causes.append(Cause(f"{path}.name", f"Duplicate value: {shown(port['name'])}", "FieldValueDuplicate"))
        seen.add(identity)
        names.add(port.get("name"))
        number = port.get("nodePort")
        if number and kind not in ("NodePort", "LoadBalancer"):
            causes.append(forbidden(f"{path}.nodePort", f"may not be used when `type` is '{kind}'"))
        if number and (port.get("protocol"), number) in open_ports:
            causes.append(Cause(f"{path}.nodePort", f"Duplicate value: {number}", "FieldValueDuplicate"))
        open_ports.add((port.get("protocol"), number))
    return causes


def _check_port(port: Object, path: str, *, named: bool) -> list[Cause]:
    causes: list[Cause] = []
    for name in ("port", "targetPort"):
        number = port.get(name)
        if isinstance(number, int) and not 0 < number < 65536:
            causes.append(bad_value(f"{path}.{name}", number, "must be between 1 and 65535, inclusive"))
    target = port.get("targetPort")
    if isinstance(target, str) and not _PORT_NAME.fullmatch(target):
        causes.append(bad_value(f"{path}.targetPort", target, "must be the name of a port, of at most 15 characters"))
    if named and not port.get("name"):
        causes.append(required(f"{path}.name"))
    elif port.get("name") and not is_dns_label(port["name"]):
        causes.append(bad_value(f"{path}.name", port["name"], "must be a lowercase RFC 1123 label"))
    if port.get("protocol") not in _PROTOCOLS:
        causes.append(unsupported(f"{path}.protocol", port.get("protocol"), _PROTOCOLS))
    return causes


def _check_choices(spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    if spec.get("sessionAffinity") not in _AFFINITIES:
        causes.append(unsupported("spec.sessionAffinity", spec.get("sessionAffinity"), _AFFINITIES))
    policies = [name for name in ("internalTrafficPolicy", "externalTrafficPolicy") if spec.get(name)]
    causes += [unsupported(f"spec.{name}", spec[name], _POLICIES) for name in policies if spec[name] not in _POLICIES]
    path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    if spec.get("sessionAffinity") == "None" and spec.get("sessionAffinityConfig"):
        why = "must not be set when session affinity is None"
        causes.append(forbidden("spec.sessionAffinityConfig", why))
    elif seconds is not None and not 0 < seconds <= _MOST_AFFINITY_S:
        causes.append(bad_value(path, seconds, f"must be greater than 0 and less than {_MOST_AFFINITY_S}"))
    return causes


def _check_selector(selector: dict[str, str]) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in selector.items():
        if not is_qualified_name(key):
            causes.append(bad_value("spec.selector", key, "is not a valid label key"))
        if not is_label_value(value or ""):
            causes.append(bad_value("spec.selector", value, "is not a valid label value"))
    return causes


def _check_addresses(spec: Object) -> list[Cause]:
    given = list(spec.get("clusterIPs") or ())
    if given and not spec.get("clusterIP"):
        return [bad_value("spec.clusterIPs", given, "must be empty when `clusterIP` is not specified")]
    if given and given[0] != spec.get("clusterIP"):
        return [bad_value("spec.clusterIPs", given, "first value must match `clusterIP`")]
    if NONE in given:
        return (
            [] if given == [NONE] else [bad_value("spec.clusterIPs", given, "'None' must be the first and only value")]
        )
    causes = [
        bad_value(f"spec.clusterIPs[{index}]", text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
        for index, text in enumerate(given)
        if not is_address(text)
    ]
    families = spec.get("ipFamilies") or []
    if not causes and len(given) > len(families):
        causes.append(bad_value("spec.clusterIPs", given, "may only hold as many values as ipFamilies"))
    for index, (text, family) in enumerate(zip(given, families, strict=False)):
        if not causes and f"IPv{ipaddress.ip_address(text).version}" != family:
            why = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            causes.append(bad_value(f"spec.clusterIPs[{index}]", text, why))
    return causes


def _check_change(spec: Object, before: Object) -> list[Cause]:
    was, now = before.get("clusterIPs") or [], spec.get("clusterIPs") or []
    if "ExternalName" in (before.get("type"), spec.get("type")) or not was:
        return []
    if now[:1] != was[:1]:
        return [bad_value("spec.clusterIPs[0]", now, "may not change once set")]
    families = before.get("ipFamilies") or []
    if families and (spec.get("ipFamilies") or [])[:1] != families[:1]:
        return [bad_value("spec.ipFamilies[0]", spec.get("ipFamilies"), "may not change once set")]
    return []


def check_endpoint_slice(piece: Object, old: Object | None) -> list[Cause]:
    """Bounded, and its addresses are what its type says."""
    endpoints, ports = piece.get("endpoints") or [], piece.get("ports") or []
    causes: list[Cause] = []
    if piece.get("addressType") not in ("IPv4", "IPv6", "FQDN"):
        causes.append(unsupported("addressType", piece.get("addressType"), ["FQDN", "IPv4", "IPv6"]))
    if old is not None and old.get("addressType") != piece.get("addressType"):
        causes.append(bad_value("addressType", piece.get("addressType"), "field is immutable"))
    for name, found, most in (("endpoints", endpoints, _MOST_ENDPOINTS), ("ports", ports, _MOST_PORTS)):
        if len(found) > most:
            causes.append(Cause(name, f"Too many: {len(found)}: must have at most {most} items", "FieldValueTooMany"))
    for index, endpoint in enumerate(endpoints[:_MOST_ENDPOINTS]):
        if endpoint.get("hostname") and not is_dns_label(endpoint["hostname"]):
            causes.append(bad_value(f"endpoints[{index}].hostname", endpoint["hostname"], "must be a DNS label"))
        causes += _check_endpoint(endpoint, f"endpoints[{index}].addresses", piece.get("addressType"))
    return causes


def _check_endpoint(endpoint: Object, path: str, kind: object) -> list[Cause]:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        return [required(path, "must contain at least 1 address")]
    if kind == "FQDN":
        return []
    return [
        bad_value(f"{path}[{index}]", text, f"must be a valid {kind} address")
        for index, text in enumerate(addresses)
        if not is_address(text) or f"IPv{ipaddress.ip_address(text).version}" != kind
    ]
