"""The way to exporters from outside of the cluster, for who has an export's token and nothing else.

The path says which export; its status says whom to trust, and its Pod, which virt-controller made for it, where it is.
The exporter itself judges the token. What strangers can take here is bounded: a few requests at a time, GET and HEAD
only, no body, and nothing without a token is even looked at.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Protocol

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from virt_api.problems import Problem
from virt_api.serving.crowd import Rank
from virt_api.serving.requests import has_shown
from virt_core.apis import exportplan
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.facts import is_terminating
from virt_core.apis.pods import Pod
from virt_core.apis.registry import UnusableName, segment
from virt_core.kube.errors import ApiError, NotFound

PATH = "/api/export.kubevirt.io/{version:v1beta1|v1}/namespaces/{namespace}/virtualmachineexports/{name}/{rest:.+}"
_AT_ONCE = 32
#: Anybody can write something that looks like a token: what others ask the API server for goes on meanwhile.
_LOOKUPS = 2
_MAX_TOKEN, _MAX_PATH = 4096, 4096
_CONNECT_S, _QUIET_S = 10.0, 60.0
_CHUNK = 1 << 16
#: What goes to the exporter, and what comes from it.
_ASKED = (exportplan.TOKEN_HEADER, hdrs.RANGE, hdrs.IF_RANGE, hdrs.IF_MATCH, hdrs.ACCEPT)
_ANSWERED = (
    hdrs.CONTENT_TYPE,
    hdrs.CONTENT_LENGTH,
    hdrs.CONTENT_RANGE,
    hdrs.ACCEPT_RANGES,
    hdrs.ETAG,
    hdrs.RETRY_AFTER,
    hdrs.LOCATION,
    hdrs.CACHE_CONTROL,
    "X-Content-Type-Options",
    "Content-Security-Policy",
    exportplan.SIZE_HEADER,
)


class Source(Protocol):
    """What of Kubernetes is asked."""

    async def export(self, namespace: str, name: str) -> VirtualMachineExport: ...

    async def pod(self, namespace: str, name: str) -> Pod: ...


class ExportProxy:
    """Lives in the event loop."""

    def __init__(self, kube: Source, port: int = exportplan.PORT) -> None:
        self._kube, self._port = kube, port
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._lookups = asyncio.Semaphore(_LOOKUPS)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get(exportplan.TOKEN_HEADER, "")
        if not token or len(token) > _MAX_TOKEN:
            raise Problem(401, f"send the export's token as the header {exportplan.TOKEN_HEADER}")
        if self._places.locked():
            raise Problem(503, "too many downloads at a time")
        async with self._places:
            return await self._pass_on(request)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        async with self._lookups:
            export, pod = await self._find(namespace, name)
        links = export.status.links
        assert links is not None
        assert links.internal is not None
        context = _trusting(links.internal.cert)
        host = f"{exportplan.service_name(name)}.{namespace}.svc"
        url = URL.build(scheme="https", host=pod.status.pod_ip, port=self._port).join(_rest(request))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_QUIET_S)
        headers = {key: request.headers[key] for key in _ASKED if key in request.headers}
        try:
            async with (
                aiohttp.ClientSession(
                    cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False, timeout=timeout
                ) as session,
                session.request(
                    request.method, url, headers=headers, ssl=context, server_hostname=host, allow_redirects=False
                ) as answer,
            ):
                return await _stream(request, answer)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Problem(502, f"the exporter of {namespace}/{name} does not answer") from error

    async def _find(self, namespace: str, name: str) -> tuple[VirtualMachineExport, Pod]:
        """Raises Problem."""
        try:
            segment(namespace), segment(name)
            export = await self._kube.export(namespace, name)
        except (NotFound, UnusableName) as error:
            raise Problem(404, "there is no such export") from error
        except ApiError as error:
            raise Problem(503, "the API server does not answer") from error
        if export.status.phase != "Ready" or export.status.links is None or export.status.links.internal is None:
            raise Problem(503, f"the export is {export.status.phase or 'new'}, not Ready")
        try:
            pod = await self._kube.pod(namespace, exportplan.pod_name(name))
        except ApiError as error:
            raise Problem(503, "the exporter is not there") from error
        ours = any(ref.uid == export.metadata.uid for ref in pod.metadata.owner_references)
        if not ours or is_terminating(pod) or not pod.status.pod_ip or pod.spec.host_network:
            raise Problem(503, "the exporter is not there")
        return export, pod


def _rest(request: web.Request) -> URL:
    """As it was sent: what means something else after decoding is for the exporter to refuse."""
    raw = request.raw_path.partition("?")[0]
    rest = "/" + "/".join(raw.split("/")[8:])
    if len(rest) > _MAX_PATH or any(part in (".", "..") for part in rest.split("/")):
        raise Problem(404, "there is no such file")
    start = request.query.get(exportplan.QUERY_FROM, "")
    query = f"?{exportplan.QUERY_FROM}={start}" if start.isascii() and start.isdigit() else ""
    return URL(rest + query, encoded=True)


def _trusting(certificate: str) -> ssl.SSLContext:
    """The exporter's own authority and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=certificate)
    except (ssl.SSLError, ValueError) as error:
        raise Problem(503, "the export has no certificate that can be used") from error
    return context


async def _stream(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
    if answer.status < 300:
        has_shown(request, Rank.KNOWN)
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_chunked(_CHUNK):
            await response.write(chunk)
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        # The answer has begun: only a connection that breaks off says that it is not whole.
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: headers[key] for key in _ANSWERED if key in headers} | {hdrs.CONNECTION: "close"}
