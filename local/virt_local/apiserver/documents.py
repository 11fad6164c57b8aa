"""The paths that are not about objects: discovery, OpenAPI, version, health and metrics."""

from __future__ import annotations

import platform
from typing import Any

from aiohttp import web

from virt_core import __version__
from virt_core.runtime.metrics import REGISTRY
from virt_local.apiserver import errors, metrics
from virt_local.apiserver.discovery import aggregated, groups
from virt_local.apiserver.discovery.openapi import EMPTY_SWAGGER, SWAGGER_PROTOBUF, OpenApi
from virt_local.apiserver.output.encode import encode
from virt_local.apiserver.server import Server

Object = dict[str, Any]

_KUBERNETES = ("1", "36")
_OTHER_PATHS = ("/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version")
_HEALTH = ("healthz", "livez", "readyz")


def version_info(instance: str = "") -> Object:
    """The Kubernetes version whose documented behaviour this server follows, and whose it is, for `virtctl explain`."""
    major, minor = _KUBERNETES
    ours = f"virtpod-{__version__}" + (f".instance-{instance}" if instance else "")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{major}.{minor}.0+{ours}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": f"python{platform.python_version()}",
        "platform": f"linux/{platform.machine().replace('x86_64', 'amd64').replace('aarch64', 'arm64')}",
    }


class Documents:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._openapi = OpenApi(server.catalog)

    async def answer(self, request: web.Request) -> web.Response:
        parts = [part for part in request.path.split("/") if part]
        head = parts[0] if parts else ""
        if head in _HEALTH:
            return self._health(head, verbose="verbose" in request.query)
        if head in ("api", "apis"):
            return await self._discovery(request, parts)
        if head == "openapi":
            return await self._openapi_answer(request, parts[1:])
        if parts == ["version"]:
            return _json(version_info(self._server.instance))
        if parts == ["metrics"]:
            return self._metrics()
        if not parts:
            return _json({"paths": self._paths()})
        raise errors.PageNotFound

    def _health(self, what: str, *, verbose: bool) -> web.Response:
        if what == "readyz" and self._server.stopping.is_set():
            raise errors.unavailable("the server is stopping")
        return web.Response(text=f"[+]ping ok\n[+]store ok\n{what} check passed\n" if verbose else "ok")

    def _metrics(self) -> web.Response:
        store = self._server.store
        for resource, count in store.resources().items():
            metrics.OBJECTS.set(count, resource)
        metrics.WATCHERS.set(store.watcher_count())
        metrics.REVISION.set(store.revision)
        return web.Response(text=REGISTRY.render(), content_type="text/plain")

    def _paths(self) -> list[str]:
        """Everything that can be asked without naming a resource."""
        catalog = self._server.catalog
        groups_ = [group for group in catalog.groups() if group]
        found = {f"/apis/{group}" for group in groups_} | {"/api", "/api/v1", "/apis", "/apis/", *_OTHER_PATHS}
        found |= {f"/apis/{group}/{version}" for group in groups_ for version in catalog.versions(group)}
        return sorted(found)

    async def _discovery(self, request: web.Request, parts: list[str]) -> web.Response:
        catalog, remote = self._server.catalog, await self._remote(parts)
        version = aggregated.wanted_version(request.headers.get("Accept", ""))
        if len(parts) == 1 and version:
            names = [""] if parts[0] == "api" else [group for group in catalog.groups() if group]
            body = aggregated.discovery_list(catalog, version, names, remote)
            return _json(body, aggregated.content_type(version))
        found = self._document(request, parts, remote)
        if found is None:
            raise errors.PageNotFound
        return _json(found)

    async def _remote(self, parts: list[str]) -> list[Object]:
        return await self._server.hooks.aggregator.discovery() if parts[0] == "apis" else []

    def _document(self, request: web.Request, parts: list[str], remote: list[Object]) -> Object | None:
        catalog = self._server.catalog
        match parts:
            case ["api"]:
                return groups.core_versions(request.host)
            case ["api", version]:
                return groups.resource_list(catalog, "", version)
            case ["apis"]:
                return groups.group_list(catalog, remote)
            case ["apis", group]:
                return groups.single_group(catalog, remote, group)
            case ["apis", group, version]:
                return groups.resource_list(catalog, group, version)
        return None

    async def _openapi_answer(self, request: web.Request, parts: list[str]) -> web.Response:
        if parts == ["v3"]:
            # The real server lets the client guess, which ends in plain text.
            return _json(self._openapi.index(), "text/plain; charset=utf-8")
        if parts and parts[0] == "v3":
            document = self._openapi.document("/".join(parts[1:]))
            if document is None:
                return web.Response(status=404)
            return web.Response(body=document, content_type="application/json")
        if parts == ["v2"]:
            return await self._swagger(request.headers.get("Accept", ""))
        raise errors.path_not_found()

    async def _swagger(self, accept: str) -> web.Response:
        """Old clients fall back to this document in protobuf; an empty one tells them to leave checks to the server."""
        if "proto-openapi" in accept and "json" not in accept:
            return web.Response(body=EMPTY_SWAGGER, headers={"Content-Type": SWAGGER_PROTOBUF})
        return _json(self._openapi.swagger(await self._server.hooks.aggregator.swagger_paths()))


def _json(body: Object, content_type: str = "application/json") -> web.Response:
    return web.Response(body=encode(body), headers={"Content-Type": content_type})
