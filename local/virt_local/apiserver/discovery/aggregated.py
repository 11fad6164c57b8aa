"""Discovery in one document (apidiscovery.k8s.io/v2): all groups, versions and resources at once."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.catalog import Catalog
from virt_local.apiserver.discovery.resources import Sub, subresources
from virt_local.apiserver.kinds import Kind

Object = dict[str, Any]

VERSIONS = ("v2", "v2beta1")
_AS = "APIGroupDiscoveryList"


def wanted_version(accept: str) -> str:
    """The aggregated form that a client asks for first, or "" when it wants the older documents."""
    for choice in accept.split(","):
        kind, *parameters = (part.strip() for part in choice.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        if kind != "application/json":
            continue
        if not values.get("as"):
            return ""
        if values["as"] == _AS and values.get("g") == "apidiscovery.k8s.io" and values.get("v") in VERSIONS:
            return values["v"]
    return ""


def content_type(version: str) -> str:
    return f"application/json;g=apidiscovery.k8s.io;v={version};as={_AS}"


def discovery_list(catalog: Catalog, version: str, groups: list[str], remote: list[Object]) -> Object:
    items = [_group(catalog, group) for group in groups]
    return {
        "kind": _AS,
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": _joined(items, remote),
    }


def _joined(items: list[Object], remote: list[Object]) -> list[Object]:
    by_name = {item["metadata"].get("name", ""): item for item in items}
    for entry in remote:
        local = by_name.get(entry["metadata"]["name"])
        if local is None:
            items.append(entry)
        else:
            local["versions"] += entry.get("versions") or []
    return items


def _group(catalog: Catalog, group: str) -> Object:
    versions = [_version(catalog, group, version) for version in catalog.versions(group)]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _version(catalog: Catalog, group: str, version: str) -> Object:
    kinds = sorted(catalog.of(group, version), key=lambda kind: kind.plural)
    return {"version": version, "resources": [_resource(kind) for kind in kinds], "freshness": "Current"}


def _resource(kind: Kind) -> Object:
    resource: Object = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version if kind.group else "", "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    subs = [_subresource(kind, sub) for sub in subresources(kind)]
    return resource | {"subresources": subs} if subs else resource


def _subresource(kind: Kind, sub: Sub) -> Object:
    own = (kind.group, kind.version if kind.group else "")
    group, version = (sub.group, sub.version) if sub.kind else own
    response = {"group": group, "version": version, "kind": sub.kind or kind.kind}
    return {"subresource": sub.name, "responseKind": response, "verbs": list(sub.verbs)}
