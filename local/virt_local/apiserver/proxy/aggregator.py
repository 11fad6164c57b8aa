"""API aggregation: an APIService hands a group and version to another server, and we pass the requests on.

That server knows us by the front-proxy client certificate and believes our headers about who asks. Whether it can be
reached is checked all the time and stands in the APIService's `Available` condition.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from dataclasses import dataclass

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict

from virt_core.runtime.logs import get_logger
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import Object, User
from virt_local.apiserver.proxy.discovery import group_discovery
from virt_local.apiserver.proxy.headers import forwarded, identity
from virt_local.apiserver.proxy.stream import forward, make_session
from virt_local.apiserver.proxy.upgrade import Target, is_upgrade, pass_through
from virt_local.apiserver.security.endpoints import Endpoint, NoEndpoint, Resolver
from virt_local.apiserver.security.objects import Kept, Source

RESOURCE = "apiservices.apiregistration.k8s.io"
_CONTEXT_LIMIT = 64
_ASK_S = 5.0

log = get_logger("virt-local.apiserver.aggregation")


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """The client certificate by which other servers know us."""

    cert: str
    key: str


class Aggregator:
    """Implements hooks.Aggregator."""

    def __init__(self, source: Source, resolver: Resolver, front_proxy: FrontProxy) -> None:
        self.services = Kept(source, RESOURCE)
        self.resolver = resolver
        self._front_proxy = front_proxy
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None
        #: What each APIService last told of itself; an entry means that it answers.
        self.offers: dict[str, Object] = {}

    async def start(self) -> None:
        self._session = make_session()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the aggregator has not been started")
        return self._session

    def match(self, path: str) -> bool:
        return self._find(path) is not None

    async def handle(self, request: web.Request, user: User) -> web.StreamResponse:
        service = self._find(request.path)
        if service is None:
            raise errors.path_not_found()
        endpoint, tls = self.reach(service)
        upgrade = is_upgrade(request)
        headers = forwarded(request.headers, upgrade=upgrade)
        headers.extend(identity(user))
        if upgrade:
            target = Target(endpoint.host, endpoint.port, endpoint.server_name, tls, request.raw_path)
            return await pass_through(request, target, headers)
        url = f"{endpoint.base}{request.raw_path}"
        name = endpoint.server_name
        return await forward(self.session, request, url, headers=headers, tls=tls, server_name=name)

    async def discovery(self) -> list[Object]:
        groups: dict[str, dict[str, Object]] = {}
        for service in sorted(self.remote(), key=_preference):
            offer = self.offers.get(service["metadata"]["name"])
            if offer is not None:
                groups.setdefault(service["spec"]["group"], {})[service["spec"]["version"]] = offer
        return [group_discovery(group, versions) for group, versions in groups.items()]

    async def swagger_paths(self) -> Object:
        """Each server that answers now is asked; of its paths those count that are given to it."""
        paths: Object = {}
        for service in self.remote():
            if service["metadata"]["name"] in self.offers:
                root = f"/apis/{service['spec']['group']}/{service['spec']['version']}/"
                told = (await self._swagger_of(service)).get("paths") or {}
                paths |= {path: entry for path, entry in told.items() if path.startswith(root)}
        return paths

    async def _swagger_of(self, service: Object) -> Object:
        """Empty when it has none: not every server describes itself."""
        endpoint, tls = self.reach(service)
        url, name = f"{endpoint.base}/openapi/v2", endpoint.server_name
        try:
            async with (
                asyncio.timeout(_ASK_S),
                self.session.get(url, headers=self.question(), ssl=tls, server_hostname=name) as answer,
            ):
                found: Object = msgspec.json.decode(await answer.read(), type=dict) if answer.status == 200 else {}
                return found
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
            log.info("a server does not describe its paths", url=url, error=str(error))
            return {}

    def remote(self) -> list[Object]:
        """The APIServices that name a Service: those without one are answered here."""
        return [service for service in self.services.all() if (service.get("spec") or {}).get("service")]

    def reach(self, service: Object) -> tuple[Endpoint, ssl.SSLContext]:
        """Raises ApiError 503 when nobody is there."""
        spec = service["spec"]
        ref = spec["service"]
        try:
            endpoint = self.resolver.resolve(ref["namespace"], ref["name"], int(ref.get("port") or 443))
        except NoEndpoint as err:
            raise errors.Unreachable("service unavailable") from err
        return endpoint, self._context(spec)

    def address(self, path: str) -> tuple[str, str, ssl.SSLContext]:
        """Where a path is answered by another server: URL, name in its certificate, TLS. Raises ApiError 404 or 503."""
        service = self._find(path)
        if service is None:
            raise errors.path_not_found()
        endpoint, tls = self.reach(service)
        return f"{endpoint.base}{path}", endpoint.server_name, tls

    def question(self) -> CIMultiDict[str]:
        """Who asks when we look for ourselves."""
        ours = User("system:kube-aggregator", ("system:masters",))
        return CIMultiDict([*identity(ours).items(), ("Accept", "application/json")])

    def _find(self, path: str) -> Object | None:
        parts = path.split("/", 4)
        if len(parts) < 4 or parts[1] != "apis":
            return None
        service = self.services.get("", f"{parts[3]}.{parts[2]}")
        return service if service and (service.get("spec") or {}).get("service") else None

    def _context(self, spec: Object) -> ssl.SSLContext:
        bundle, insecure = spec.get("caBundle") or "", bool(spec.get("insecureSkipTLSVerify"))
        context = self._contexts.get((bundle, insecure))
        if context is None:
            if len(self._contexts) >= _CONTEXT_LIMIT:
                self._contexts.clear()
            context = _client_context(bundle, insecure, self._front_proxy.cert, self._front_proxy.key)
            self._contexts[bundle, insecure] = context
        return context


def _preference(service: Object) -> tuple[int, int, str]:
    spec = service["spec"]
    name = str(service["metadata"]["name"])
    return -int(spec.get("groupPriorityMinimum") or 0), -int(spec.get("versionPriority") or 0), name


def _client_context(bundle: str, insecure: bool, cert: str, key: str) -> ssl.SSLContext:
    """TLS towards another server: what we trust and who we are. `bundle` is base64 PEM as API objects
    carry it; empty means the system's authorities."""
    try:
        pem = base64.b64decode(bundle).decode()
        context = ssl.create_default_context(cadata=pem or None)
    except (binascii.Error, ValueError, ssl.SSLError) as err:
        raise errors.unavailable(f"the CA bundle cannot be read: {err}") from err
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key)
    return context
