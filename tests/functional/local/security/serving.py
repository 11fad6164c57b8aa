"""A secured API server in this process's event loop, with certificates of its own, and servers that it talks to."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from virt_local.apiserver.process import Options, run_until
from virt_local.apiserver.security.bootstrap_roles import bootstrap_objects
from virt_local.up.instance import make_instance
from virt_local.up.material import Material, make_material
from virt_local.up.pki import SERVER, Leaf, ensure_tls_dir

Object = dict[str, Any]


@dataclass
class Api:
    base: str
    material: Material
    directory: Path
    session: aiohttp.ClientSession

    def context(self, user: str = "admin") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.material.cluster_ca.path))
        if user:
            users = self.directory / "pki" / "users"
            context.load_cert_chain(users / f"{user}.crt", users / f"{user}.key")
        return context

    async def call(
        self, method: str, path: str, body: Any = None, *, user: str = "admin", headers: dict[str, str] | None = None
    ) -> tuple[int, Any, Any]:
        async with self.session.request(
            method, self.base + path, json=body, ssl=self.context(user), headers=headers
        ) as response:
            return response.status, await response.json(content_type=None), response.headers

    async def create(self, path: str, obj: Object) -> Object:
        status, answer, _ = await self.call("POST", path, obj)
        assert status == 201, answer
        made: Object = answer
        return made


@asynccontextmanager
async def api_server(directory: Path) -> AsyncIterator[Api]:
    instance = make_instance("t", str(directory))
    material = make_material(instance)
    options = Options(
        data_dir=directory / "apiserver",
        listen=["127.0.0.1:0"],
        tls_cert=str(material.api_cert),
        tls_key=str(material.api_key),
        client_ca=str(material.cluster_ca.path),
        service_account_key=str(material.signing_key),
        front_proxy_cert=str(material.front_proxy_cert),
        front_proxy_key=str(material.front_proxy_key),
    )
    stop, addresses = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def ready(found: list[str]) -> None:
        addresses.set_result(found)

    task = asyncio.create_task(run_until(options, stop, ready))
    await asyncio.wait({task, addresses}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    async with aiohttp.ClientSession() as session:
        api = Api(f"https://{addresses.result()[0]}", material, directory, session)
        for obj in bootstrap_objects():
            await api.create(f"/apis/rbac.authorization.k8s.io/v1/{obj['kind'].lower()}s", obj)
        try:
            yield api
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)


@asynccontextmanager
async def service(api: Api, name: str, app: web.Application) -> AsyncIterator[tuple[str, Object]]:
    """A TLS server behind a Service of the API: (base64 CA bundle, service reference)."""
    leaf = Leaf(f"{name}.default.svc", names=(f"{name}.default.svc",), usage=(SERVER,))
    directory = ensure_tls_dir(api.directory / name, api.material.virtpod_ca, leaf)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(api.material.front_proxy_ca.path))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    await api.create(
        "/api/v1/namespaces/default/services",
        {"metadata": {"name": name}, "spec": {"ports": [{"name": "https", "port": 443}]}},
    )
    await api.create(
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": runner.addresses[0][1]}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        },
    )
    try:
        yield base64.b64encode(api.material.virtpod_ca.pem).decode(), {"name": name, "namespace": "default"}
    finally:
        await runner.cleanup()


async def within(seconds: float, check: Any) -> Any:
    """Asks until the answer is true."""
    async with asyncio.timeout(seconds):
        while not (answer := await check()):
            await asyncio.sleep(0.02)
        return answer
