"""The documents by which clients find the API: groups, resources, OpenAPI, version."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from typing import Any, Protocol

from virt_core import __version__
from virt_core.apis.base import to_plain
from virt_core.apis.meta import APIGroup, APIGroupList, APIResource, APIResourceList, GroupVersionForDiscovery
from virt_core.apis.names import SUBRESOURCE_GROUP, VERSION, VERSION_OLD


class Offered(Protocol):
    """A call that is offered: its method, and its path after the version."""

    @property
    def method(self) -> str: ...

    @property
    def template(self) -> str: ...


VERSIONS = (VERSION, VERSION_OLD)
ROOT = f"/apis/{SUBRESOURCE_GROUP}"
#: Below it are the admission webhooks, for the API server alone: nothing that a client would want to find.
REVIEWS = f"{ROOT}/{VERSION}/reviews"
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


def openapi_v2_document(calls: Iterable[Offered]) -> dict[str, Any]:
    """The paths, which the API server shows among its own. What goes in and comes out has no schema."""
    paths: dict[str, Any] = {}
    for version in VERSIONS:
        for call in calls:
            path = f"{ROOT}/{version}{call.template}"
            paths.setdefault(path, {})[call.method.lower()] = _operation(path, call.method)
    return {"swagger": "2.0", "info": {"title": SUBRESOURCE_GROUP, "version": __version__}, "paths": paths}


def _operation(path: str, method: str) -> dict[str, Any]:
    words = re.findall(r"[A-Za-z0-9]+", path)
    return {
        "operationId": method.lower() + "".join(word.capitalize() for word in words),
        "parameters": [
            {"name": name, "in": "path", "required": True, "type": "string"} for name in re.findall(r"{(\w+)}", path)
        ],
        "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
    }


def openapi_v3_document() -> dict[str, Any]:
    return {"paths": {}}
