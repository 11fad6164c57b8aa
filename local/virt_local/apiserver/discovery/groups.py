"""The older discovery: /api, /apis, /api/v1, /apis/GROUP and /apis/GROUP/VERSION, one document each."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.catalog import Catalog
from virt_local.apiserver.discovery.resources import Sub, subresources
from virt_local.apiserver.kinds import Kind

Object = dict[str, Any]


def core_versions(address: str) -> Object:
    server = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": server}


def group_versions(catalog: Catalog, remote: list[Object]) -> dict[str, list[str]]:
    """Every named group with its versions, the preferred one first; those of other servers included."""
    found = {group: catalog.versions(group) for group in catalog.groups() if group}
    for entry in remote:
        names = [version["version"] for version in entry.get("versions") or ()]
        known = found.setdefault(entry["metadata"]["name"], [])
        known += [name for name in names if name not in known]
    return found


def group_list(catalog: Catalog, remote: list[Object]) -> Object:
    groups = [_group(name, versions) for name, versions in group_versions(catalog, remote).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def single_group(catalog: Catalog, remote: list[Object], name: str) -> Object | None:
    versions = group_versions(catalog, remote).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(catalog: Catalog, group: str, version: str) -> Object | None:
    kinds = catalog.of(group, version)
    if not kinds:
        return None
    resources: list[Object] = []
    for kind in sorted(kinds, key=lambda kind: kind.plural):
        resources.append(_resource(kind))
        resources += [_subresource(kind, sub) for sub in subresources(kind)]
    name = f"{group}/{version}" if group else version
    shell = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})  # the core group is older than that
    return {**shell, "groupVersion": name, "resources": resources}


def _resource(kind: Kind) -> Object:
    resource: Object = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    return resource


def _subresource(kind: Kind, sub: Sub) -> Object:
    resource: Object = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sub.kind or kind.kind,
        "verbs": list(sub.verbs),
    }
    return resource | {"group": sub.group, "version": sub.version} if sub.kind and sub.group else resource
