"""Streams into containers: pods/log, exec, attach and portforward go to the agent of the Pod's node.

The agent listens on its node's address with a certificate of the cluster CA, speaks the kubelet's paths, and believes
our client certificate.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import Object, User
from virt_local.apiserver.proxy.headers import forwarded
from virt_local.apiserver.proxy.stream import forward, make_session
from virt_local.apiserver.proxy.upgrade import Target, is_upgrade, pass_through
from virt_local.apiserver.security.objects import Source

_RENAMED = {"stdin": "input", "stdout": "output", "stderr": "error"}
_PATHS = {"log": "containerLogs", "exec": "exec", "attach": "attach", "portforward": "portForward"}


@dataclass(frozen=True, slots=True)
class NodeTls:
    """How we trust nodes and who we are to them."""

    ca: str
    cert: str
    key: str

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert:
            context.load_cert_chain(self.cert, self.key)
        return context


class NodeProxy:
    """Implements hooks.NodeProxy."""

    def __init__(self, source: Source, tls: NodeTls) -> None:
        self._source = source
        self._tls = tls.context()
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._session = make_session()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def handle(self, request: web.Request, user: User, pod: Object, subresource: str) -> web.StreamResponse:  # noqa: ARG002
        path = agent_path(pod, subresource, list(request.query.items()))
        if subresource == "log" and not pod["spec"].get("nodeName"):
            return web.Response(status=204)  # Nothing ran yet, so nothing was written.
        address, port = self._address(pod)
        if is_upgrade(request):
            target = Target(address, port, address, self._tls, path)
            return await pass_through(request, target, forwarded(request.headers, upgrade=True))
        if self._session is None:
            raise errors.unavailable("the node proxy is not running")
        host = f"[{address}]" if ":" in address else address
        url = f"https://{host}:{port}{path}"
        return await forward(self._session, request, url, headers=forwarded(request.headers), tls=self._tls)

    def _address(self, pod: Object) -> tuple[str, int]:
        name = pod["spec"].get("nodeName", "")
        if not name:
            raise errors.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        record = self._source.get("nodes", "", name)
        if record is None:
            raise errors.not_found("nodes", "", name)
        status = record.object().get("status") or {}
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
        addresses = [each["address"] for each in status.get("addresses") or () if each.get("type") == "InternalIP"]
        if not port or not addresses:
            raise errors.unavailable(f'node "{name}" has not said where its agent listens')
        return addresses[0], int(port)


def agent_path(pod: Object, subresource: str, query: list[tuple[str, str]]) -> str:
    """The agent's path for a request on a Pod, with the kubelet's names for the query."""
    metadata = pod["metadata"]
    where = f"/{_PATHS[subresource]}/{metadata['namespace']}/{metadata['name']}"
    asked = [(_RENAMED.get(key, key), value) for key, value in query if key != "container"]
    if subresource != "portforward":
        wanted = next((value for key, value in query if key == "container"), "")
        where += f"/{_container(pod, wanted)}"
    return f"{where}?{urlencode(asked)}" if asked else where


def _container(pod: Object, wanted: str) -> str:
    names = list(_container_names(pod))
    name = pod["metadata"]["name"]
    if wanted:
        if wanted not in names:
            raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    main = [each["name"] for each in pod["spec"].get("containers") or ()]
    if len(main) == 1:
        return str(main[0])
    listed = " ".join(main)
    raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")


def _container_names(pod: Object) -> Iterator[str]:
    for key in ("containers", "initContainers", "ephemeralContainers"):
        for container in pod["spec"].get(key) or ():
            yield container["name"]
