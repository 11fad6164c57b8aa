"""From a request to its handler, past the two questions that every subresource is asked: who, and may they?

Both are asked here, for all routes alike, before the object is looked at or the body is read; no route is without them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from virt_api.authn import Authenticator
from virt_api.authorizer import Authorizer
from virt_api.kube import Kube
from virt_api.nodes import Nodes
from virt_api.problems import Problem
from virt_api.serving.crowd import Rank
from virt_api.serving.requests import has_shown
from virt_api.subresources.call import Call
from virt_api.subresources.discovery import ROOT, VERSIONS
from virt_api.subresources.routes import ROUTES, VM, VMI, Route
from virt_core.apis.support.table import TODAY
from virt_core.kube.configvalues import ClusterConfig
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

#: What the API server would ever call an object. Anything else could lead a path of ours elsewhere.
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Router:
    kube: Kube
    nodes: Nodes
    authenticator: Authenticator
    authorizer: Authorizer
    config: Callable[[], ClusterConfig]

    def add_to(self, app: web.Application) -> None:
        for version in VERSIONS:
            for route in ROUTES:
                path = f"{ROOT}/{version}{route.template}"
                app.router.add_route(route.method, path, partial(self._serve, route, version))
            for subresource, feature in TODAY.subresources.items():
                for resource in (VM, VMI):
                    path = f"{ROOT}/{version}/namespaces/{{namespace}}/{resource}/{{name}}/{subresource}"
                    app.router.add_route("*", path, known(self.authenticator, partial(_not_built, feature.refusal)))

    async def _serve(self, route: Route, version: str, request: web.Request) -> web.StreamResponse:
        who = await self.authenticator.identify(request)
        has_shown(request, Rank.KNOWN)
        namespace, name = request.match_info.get("namespace", ""), request.match_info.get("name", "")
        await self.authorizer.require(
            who,
            method=route.method,
            version=version,
            namespace=namespace,
            resource=route.resource,
            name=name,
            subresource=route.subresource,
        )
        if not (route.clusterwide or is_name(namespace)) or (name and not is_name(name)):
            raise Problem(404, "there is no object of this name")
        call = Call(request, self.kube, self.nodes, self.config(), who, namespace, name)
        log.info("subresource", name=route.subresource or route.resource, of=f"{namespace}/{name}", user=who.user)
        return await route.act(call)


async def _not_built(sentence: str, _: web.Request) -> web.StreamResponse:
    """Not listed in discovery; who asks nevertheless learns more than that it was not found."""
    raise Problem(404, sentence)


def known(authenticator: Authenticator, handler: Handler) -> Handler:
    """For what everybody may read who is somebody: version, discovery."""

    async def serve(request: web.Request) -> web.StreamResponse:
        await authenticator.identify(request)
        has_shown(request, Rank.KNOWN)
        return await handler(request)

    return serve


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and ".." not in text
