"""What is served where: one table for the webhooks, one for the subresources, one for everything public."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakSet

import msgspec
from aiohttp import web

from virt_api import exportproxy
from virt_api.admission import routes as webhook_routes
from virt_api.admission.cluster import Cluster, NoCluster
from virt_api.admission.instancetypes import LibraryInstancetypes
from virt_api.admission.review import Admitter, BadReview, answer, unanswered
from virt_api.admission.routes import Parts
from virt_api.admission.workers import Busy, Workers
from virt_api.authn import Authenticator
from virt_api.authorizer import Authorizer
from virt_api.kube import Kube
from virt_api.live import LiveAdmitters
from virt_api.nodes import Nodes
from virt_api.problems import Problem
from virt_api.serving.crowd import Rank
from virt_api.serving.limits import REVIEW_BYTES
from virt_api.serving.requests import has_shown, read_body
from virt_api.subresources import discovery, streams
from virt_api.subresources.discovery import REVIEWS, ROOT
from virt_api.subresources.router import Router, known
from virt_api.subresources.routes import ROUTES, listed
from virt_api.uploads.discovery import documents as upload_documents
from virt_api.uploads.handlers import Uploads
from virt_api.uploads.tokens import Tokens
from virt_api.uploads.tunnel import Forwarder
from virt_core.apis import names
from virt_core.kube.clusterconfig import CONFIG_VERSION
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.errors import ApiError
from virt_core.runtime.clock import Clock
from virt_core.runtime.health import Check, run_checks
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import REGISTRY, Histogram

log = get_logger(__name__)

LATENCY = Histogram("virt_api_request_seconds", "Time to answer a request, without streams.", ("route", "method"))

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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
    guestfs_image: str = ""
    live_config: Callable[[], ClusterConfig] | None = None
    config_ready: Callable[[], bool] = lambda: True
    config_version: Callable[[], str] = lambda: "0"
    cluster: Cluster = field(default_factory=NoCluster)
    #: The way to importers, and what their tokens are signed with; None: no uploads are taken.
    forwarder: Forwarder | None = None
    token_key: Callable[[], bytes] = lambda: secrets.token_bytes(32)
    #: What else must be well before anybody is sent to us, e.g. certificates.
    checks: Mapping[str, Check] = field(default_factory=dict)

    def current_config(self) -> ClusterConfig:
        """The configuration as it is now; `config` is that of the moment of the start."""
        return self.live_config() if self.live_config is not None else self.config


def build(services: Services) -> web.Application:
    app = web.Application(client_max_size=REVIEW_BYTES, middlewares=[_failures])
    app[streams.OPEN_SOCKETS] = WeakSet()
    app.on_shutdown.append(streams.close_all)
    make = partial(_webhooks_for, services)
    live = LiveAdmitters(make, services.current_config, services.config_ready)
    workers = Workers()
    app.on_cleanup.append(partial(_close, workers))
    for path, admit in live.by_path().items():
        review = partial(_review, admit, path, workers)
        app.router.add_post(f"{REVIEWS}{path}", from_api_server(services.authenticator, review))
    for path, handler in public(services).items():
        app.router.add_get(path, handler)
    for path, handler in for_everybody_known(services).items():
        app.router.add_get(path, known(services.authenticator, handler))
    app.router.add_get(exportproxy.PATH, exportproxy.ExportProxy(services.kube).serve)
    router = Router(services.kube, services.nodes, services.authenticator, services.authorizer, services.current_config)
    router.add_to(app)
    _add_uploads(app, services)
    return app


def _add_uploads(app: web.Application, services: Services) -> None:
    """Where DataVolumes are ours: an API service leads token requests to us only there."""
    if services.forwarder is None:
        return
    tokens = Tokens(services.token_key, services.clock)
    parts = (services.kube, services.authenticator, services.authorizer, tokens, services.forwarder, services.clock)
    Uploads(*parts).add_to(app)


def _webhooks_for(services: Services, config: ClusterConfig) -> dict[str, Admitter]:
    return webhooks(replace(services, config=config))


def webhooks(services: Services) -> dict[str, Admitter]:
    """For the configuration of `services.config`."""
    parts = Parts(
        config=lambda: services.config,
        clock=services.clock,
        cluster=services.cluster,
        types=LibraryInstancetypes(services.cluster, lambda: services.config),
        namespace=services.namespace,
    )
    return webhook_routes.webhooks(parts)


def public(services: Services) -> dict[str, Handler]:
    """What needs no identity: a probe learns whether we are well, nothing else."""
    return {"/healthz": partial(_health, services), "/livez": _alive, "/readyz": partial(_ready, services)}


def for_everybody_known(services: Services) -> dict[str, Handler]:
    """What needs an identity but no right: it says nothing about anybody's machines."""
    routes: dict[str, Handler] = {
        "/metrics": _metrics,
        "/apis": partial(_document, discovery.group_list_document()),
        ROOT: partial(_document, discovery.group_document()),
        "/openapi/v2": partial(_document, discovery.openapi_v2_document(ROUTES)),
        "/openapi/v3": partial(_document, discovery.openapi_v3_document()),
    }
    if services.forwarder is not None:
        routes |= {path: partial(_document, found) for path, found in upload_documents().items()}
    for version in discovery.VERSIONS:
        routes[f"{ROOT}/{version}"] = partial(_document, discovery.resources_document(version, listed(ROUTES)))
        routes[f"{ROOT}/{version}/version"] = partial(_document, discovery.version_document())
        routes[f"{ROOT}/{version}/guestfs"] = partial(_document, discovery.guestfs_document(services.guestfs_image))
        routes[f"{ROOT}/{version}/healthz"] = partial(_api_health, services)
    return routes


def from_api_server(authenticator: Authenticator, handler: Handler) -> Handler:
    """The same, after a look at who sends it and before anything of it is read."""

    async def checked(request: web.Request) -> web.StreamResponse:
        authenticator.require_api_server(request)
        return await handler(request)

    return checked


async def _review(admit: Admitter, path: str, workers: Workers, request: web.Request) -> web.Response:
    if request.content_type != "application/json":
        raise Problem(400, f"an AdmissionReview is application/json, not {request.content_type}")
    body = await read_body(request, REVIEW_BYTES)
    try:
        verdict = await workers.run(partial(answer, body, admit, path), asks=path in webhook_routes.ASKING)
        has_shown(request, Rank.KNOWN)
    except Busy as busy:
        verdict = unanswered(body, str(busy), path)
    except BadReview as error:
        raise Problem(400, str(error)) from error
    return web.Response(body=verdict, content_type="application/json")


async def _close(workers: Workers, _: web.Application) -> None:
    workers.close()


async def _health(services: Services, _: web.Request) -> web.Response:
    return _json({"status": "ok", CONFIG_VERSION: services.config_version()})


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _ready(services: Services, _: web.Request) -> web.Response:
    try:
        await services.kube.version()
    except ApiError as error:
        return web.Response(status=503, text=f"[-] apiserver: {error}\nnot ready\n")
    if not services.config_ready():
        return web.Response(status=503, text="[+] apiserver\n[-] configuration: not read yet\nnot ready\n")
    failed = run_checks(services.checks)
    lines = [f"[-] {name}: {failed[name]}" if name in failed else f"[+] {name}" for name in services.checks]
    text = "\n".join(["[+] apiserver", "[+] configuration", *lines, "not ready" if failed else "ok"])
    return web.Response(status=503 if failed else 200, text=text + "\n")


async def _api_health(services: Services, _: web.Request) -> web.Response:
    known = {CONFIG_VERSION: services.config_version()}
    try:
        version = msgspec.json.decode(await services.kube.version())
    except ApiError as error:
        return _json({"apiserver": {"connectivity": "failed", "error": str(error)}, **known}, 503)
    return _json({"apiserver": {"connectivity": "ok", "version": version}, **known})


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(text=REGISTRY.render())


async def _document(document: dict[str, Any], _: web.Request) -> web.Response:
    return _json(document)


def _json(document: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(document), content_type="application/json")


def _refusal(problem: Problem) -> web.Response:
    return _json(problem.document(), problem.code)


@web.middleware
async def _failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure is a Status; every surprise is logged once, and says nothing about our inside."""
    started = asyncio.get_running_loop().time()
    try:
        response = await handler(request)
    except Problem as problem:
        response = _refusal(problem)
    except web.HTTPException as refused:
        response = _refusal(Problem(refused.status, refused.reason))
    except web.RequestPayloadError:
        response = _refusal(Problem(400, "the body of the request is not what its headers say"))
    except RecursionError:
        response = _refusal(Problem(400, "the body is nested too deeply"))
    except Exception:
        log.exception("a request failed", method=request.method, path=request.path)
        response = _refusal(Problem(500, "internal error; see the log of virt-api"))
    if not isinstance(response, web.WebSocketResponse):
        route = request.match_info.route.resource
        took = asyncio.get_running_loop().time() - started
        LATENCY.observe(took, route.canonical if route else "none", request.method)
    return response
