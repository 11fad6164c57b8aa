"""What is served where: one table for the webhooks, one for the subresources, one for everything public."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

import msgspec
from aiohttp import web

from virt_api.admission.mutate import VMIMutator
from virt_api.admission.review import Admitter, BadReview, answer
from virt_api.admission.validate import VMICreateValidator, VMIUpdateValidator
from virt_api.authn import Authenticator
from virt_api.authorizer import Authorizer
from virt_api.config import ClusterConfig
from virt_api.kube import Kube
from virt_api.nodes import Nodes
from virt_api.problems import Problem, from_api
from virt_api.subresources import actions, checks, discovery, streams
from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import REGISTRY, Histogram

log = get_logger(__name__)

BODY_LIMIT = 4 << 20
ROOT = f"/apis/{names.SUBRESOURCE_GROUP}"
VMI_PATH = "/namespaces/{namespace}/virtualmachineinstances/{name}/"
LATENCY = Histogram("virt_api_request_seconds", "Time to answer, streams left out", ("route", "method"))

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Act = Callable[[web.Request, VirtualMachineInstance, Nodes], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Subresource:
    """A verb on a VMI: what must hold, and what is done."""

    method: str
    name: str
    check: Callable[[VirtualMachineInstance], None]
    act: Act


SUBRESOURCES = (
    Subresource("GET", "console", checks.console, streams.console),
    Subresource("GET", "vnc", checks.vnc, streams.vnc),
    Subresource("PUT", "pause", checks.pause, actions.pause),
    Subresource("PUT", "unpause", checks.unpause, actions.unpause),
    Subresource("GET", "guestosinfo", checks.guest_agent, actions.guest_os_info),
)


@dataclass(frozen=True, slots=True)
class Services:
    """What the handlers work with."""

    kube: Kube
    nodes: Nodes
    authenticator: Authenticator
    authorizer: Authorizer
    config: ClusterConfig
    clock: Clock
    namespace: str = names.INSTALL_NAMESPACE


def build(services: Services) -> web.Application:
    app = web.Application(client_max_size=BODY_LIMIT, middlewares=[_failures])
    app[streams.OPEN_SOCKETS] = WeakSet()
    app.on_shutdown.append(streams.close_all)
    for path, admit in webhooks(services).items():
        app.router.add_post(path, partial(_review, admit, path))
    for path, handler in public(services).items():
        app.router.add_get(path, handler)
    for version in discovery.VERSIONS:
        for sub in SUBRESOURCES:
            path = f"{ROOT}/{version}{VMI_PATH}{sub.name}"
            app.router.add_route(sub.method, path, partial(_subresource, services, sub, version))
    return app


def webhooks(services: Services) -> dict[str, Admitter]:
    users = {name: names.service_account_user(name, services.namespace) for name in names.SERVICE_ACCOUNTS}
    trusted = frozenset(users.values())
    return {
        "/virtualmachineinstances-mutate": VMIMutator(services.config, services.clock, trusted),
        "/virtualmachineinstances-validate-create": VMICreateValidator(services.config, trusted),
        "/virtualmachineinstances-validate-update": VMIUpdateValidator(
            services.config, trusted, users[names.SA_HANDLER]
        ),
    }


def public(services: Services) -> dict[str, Handler]:
    """What needs no identity: it says nothing about anybody's machines."""
    listed = [(sub.method, sub.name) for sub in SUBRESOURCES]
    routes: dict[str, Handler] = {
        "/healthz": _healthy,
        "/livez": _healthy,
        "/readyz": partial(_ready, services.kube),
        "/metrics": _metrics,
        "/apis": partial(_document, discovery.group_list_document()),
        ROOT: partial(_document, discovery.group_document()),
        "/openapi/v2": partial(_document, discovery.openapi_v2_document()),
        "/openapi/v3": partial(_document, discovery.openapi_v3_document()),
    }
    for version in discovery.VERSIONS:
        routes[f"{ROOT}/{version}"] = partial(_document, discovery.resources_document(version, listed))
        routes[f"{ROOT}/{version}/version"] = partial(_document, discovery.version_document())
        routes[f"{ROOT}/{version}/healthz"] = partial(_api_health, services.kube)
    return routes


async def _subresource(services: Services, sub: Subresource, version: str, request: web.Request) -> web.StreamResponse:
    namespace, name = request.match_info["namespace"], request.match_info["name"]
    who = await services.authenticator.identify(request)
    await services.authorizer.require(
        who,
        method=request.method,
        version=version,
        namespace=namespace,
        resource="virtualmachineinstances",
        name=name,
        subresource=sub.name,
    )
    try:
        vmi = await services.kube.vmi(namespace, name)
    except ApiError as error:
        raise from_api(error, name) from error
    sub.check(vmi)
    log.info("subresource", name=sub.name, namespace=namespace, vmi=name, user=who.user)
    return await sub.act(request, vmi, services.nodes)


async def _review(admit: Admitter, path: str, request: web.Request) -> web.Response:
    if request.content_type != "application/json":
        raise Problem(400, f"an AdmissionReview is application/json, not {request.content_type}")
    body = await request.read()
    try:
        return web.Response(body=answer(body, admit, path), content_type="application/json")
    except BadReview as error:
        raise Problem(400, str(error)) from error


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _ready(kube: Kube, _: web.Request) -> web.Response:
    try:
        await kube.version()
    except ApiError as error:
        return web.Response(status=503, text=f"[-] apiserver: {error}\nnot ready\n")
    return web.Response(text="[+] apiserver\nok\n")


async def _api_health(kube: Kube, _: web.Request) -> web.Response:
    try:
        version = msgspec.json.decode(await kube.version())
    except ApiError as error:
        return _json({"apiserver": {"connectivity": "failed", "error": str(error)}}, 503)
    return _json({"apiserver": {"connectivity": "ok", "version": version}})


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(text=REGISTRY.render())


async def _document(document: dict[str, Any], _: web.Request) -> web.Response:
    return _json(document)


def _json(document: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(document), content_type="application/json")


@web.middleware
async def _failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure is a Status; every surprise is logged once, and says nothing about our inside."""
    started = asyncio.get_running_loop().time()
    try:
        response = await handler(request)
    except Problem as problem:
        response = problem.response()
    except web.HTTPException as refused:
        response = Problem(refused.status, refused.reason).response()
    except Exception:
        log.exception("a request failed", method=request.method, path=request.path)
        response = Problem(500, "internal error; see the log of virt-api").response()
    if not isinstance(response, web.WebSocketResponse):
        route = request.match_info.route.resource
        took = asyncio.get_running_loop().time() - started
        LATENCY.observe(took, route.canonical if route else "none", request.method)
    return response
