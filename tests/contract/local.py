"""virt-local's API server for the contract: secured as in `virt-local up`, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3
from contract.engine import LOCAL, Engine

from virt_local.apiserver.process import Options, run_until
from virt_local.apiserver.security.bootstrap_roles import bootstrap_objects
from virt_local.up.instance import make_instance
from virt_local.up.material import Material, make_material

_START_S = 30.0


@contextmanager
def virt_local(directory: Path) -> Iterator[Engine]:
    material = make_material(make_instance("t", str(directory)))
    options = _options(directory, material)
    first = _Serving(options)
    first.start()
    first.stop()  # A server that was started once more has forgotten the oldest changes, as every other one has.
    serving = _Serving(options)
    url = serving.start()
    users = directory / "pki" / "users"
    cert, key = (users / "admin.crt").read_bytes(), (users / "admin.key").read_bytes()
    engine = Engine(LOCAL, url, material.cluster_ca.pem, cert, key, "127.0.0.1")
    try:
        _install_roles(engine)
        yield engine
    finally:
        engine.close()
        serving.stop()


def _options(directory: Path, material: Material) -> Options:
    return Options(
        data_dir=directory / "apiserver",
        listen=["127.0.0.1:0"],
        tls_cert=str(material.api_cert),
        tls_key=str(material.api_key),
        client_ca=str(material.cluster_ca.path),
        service_account_key=str(material.signing_key),
        front_proxy_cert=str(material.front_proxy_cert),
        front_proxy_key=str(material.front_proxy_key),
        service_ranges=["10.249.224.0/20"],
    )


class _Serving:
    """The server's event loop in a thread of its own."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._addresses: list[str] = []
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="contract-apiserver")

    def start(self) -> str:
        self._thread.start()
        assert self._ready.wait(_START_S), "virt-local's API server did not start"
        return f"https://{self._addresses[0]}"

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_S)
        assert not self._thread.is_alive(), "virt-local's API server did not stop"

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await run_until(self._options, self._stop, self._listening)

    async def _listening(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self._ready.set()


def _install_roles(engine: Engine) -> None:
    for obj in bootstrap_objects():
        url = f"{engine.url}/apis/rbac.authorization.k8s.io/v1/{obj['kind'].lower()}s"
        answer: urllib3.BaseHTTPResponse = engine.pool().request("POST", url, json=obj)
        assert answer.status == 201, answer.data
