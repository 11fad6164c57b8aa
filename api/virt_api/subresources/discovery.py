"""The documents by which clients find the API: groups, resources, OpenAPI, version."""

from __future__ import annotations

import platform
from typing import Any

from virt_core import __version__
from virt_core.apis.base import to_plain
from virt_core.apis.meta import APIGroup, APIGroupList, APIResource, APIResourceList, GroupVersionForDiscovery
from virt_core.apis.names import SUBRESOURCE_GROUP, VERSION, VERSION_OLD

VERSIONS = (VERSION, VERSION_OLD)
ROOT = f"/apis/{SUBRESOURCE_GROUP}"
_VERBS = {"GET": "get", "PUT": "update"}


def _kinded(obj: Any) -> dict[str, Any]:
    return {"apiVersion": obj.api_version, "kind": obj.kind, **to_plain(obj)}


def group() -> APIGroup:
    versions = [GroupVersionForDiscovery(group_version=f"{SUBRESOURCE_GROUP}/{v}", version=v) for v in VERSIONS]
    return APIGroup(name=SUBRESOURCE_GROUP, versions=versions, preferred_version=versions[0])


def group_document() -> dict[str, Any]:
    return _kinded(group())


def group_list_document() -> dict[str, Any]:
    return _kinded(APIGroupList(groups=[group()]))


def resources_document(version: str, subresources: list[tuple[str, str, str]]) -> dict[str, Any]:
    """`subresources`: name, kind and method of each."""
    resources = [
        APIResource(name=name, namespaced=True, kind=kind, verbs=[_VERBS[method]])
        for name, kind, method in subresources
    ]
    resources += [APIResource(name=name, namespaced=False, verbs=["get"]) for name in ("version", "guestfs", "healthz")]
    document = APIResourceList(group_version=f"{SUBRESOURCE_GROUP}/{version}", resources=resources)
    plain = _kinded(document)
    for resource in plain["resources"]:
        resource.setdefault("singularName", "")
        resource.setdefault("kind", "")
    return plain


def version_document() -> dict[str, Any]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "gitVersion": f"v{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"linux/{machine}",
    }


def guestfs_document(image: str) -> dict[str, str]:
    """Where virtctl guestfs finds its tools."""
    return {"registry": "", "tag": "", "digest": "", "imagePrefix": "", "gsImage": image}


def openapi_v2_document() -> dict[str, Any]:
    """Empty: these calls have no schema, but the aggregator asks for one."""
    return {"swagger": "2.0", "info": {"title": SUBRESOURCE_GROUP, "version": __version__}, "paths": {}}


def openapi_v3_document() -> dict[str, Any]:
    return {"paths": {}}
