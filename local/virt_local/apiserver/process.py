"""The API server as a process: options in, a served socket out, until it is told to stop.

`virt_local.main` parses the command line and calls `run`. Security is looked up by name here, because the core does not
depend on it: `virt_local.apiserver.security.build_hooks(server, options) -> Hooks`.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import importlib
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from virt_core.runtime.logs import get_logger
from virt_local.apiserver.addresses import parse_ranges
from virt_local.apiserver.app import build_app
from virt_local.apiserver.hooks import Hooks
from virt_local.apiserver.server import Server
from virt_local.apiserver.serving import serve
from virt_local.apiserver.storage import InUse
from virt_local.apiserver.tasks import background_tasks

log = get_logger("virt-local.apiserver")


@dataclass
class Options:
    """What the command line says. Paths that only security reads are passed through to it."""

    data_dir: Path
    instance: str = ""
    listen: list[str] = field(default_factory=lambda: ["127.0.0.1:7443"])
    tls_cert: str = ""
    tls_key: str = ""
    client_ca: str = ""
    insecure: bool = False  # plain HTTP and no authentication: for tests of the core alone
    service_account_key: str = ""
    service_account_issuer: str = "https://kubernetes.default.svc"
    front_proxy_cert: str = ""
    front_proxy_key: str = ""
    front_proxy_ca: str = ""
    root_ca: str = ""  # written as kube-root-ca.crt into every namespace
    node_proxy_ca: str = ""
    idle_services: bool = True  # whether Services are kept on which nothing here would act
    service_ranges: list[str] = field(default_factory=list)  # where Services get their addresses from
    extra: dict[str, str] = field(default_factory=dict)


def run(options: Options) -> None:
    """Serves until SIGTERM or SIGINT. What keeps it from starting is said in one sentence."""
    os.umask(0o077)  # the database holds every Secret
    try:
        asyncio.run(_main(options))
    except InUse as error:
        raise SystemExit(f"virt-local apiserver: {error}") from None
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
            raise
        raise SystemExit(f"virt-local apiserver: cannot listen on {', '.join(options.listen)}: {error}") from None


async def _main(options: Options) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    await run_until(options, stop)


async def run_until(
    options: Options, stop: asyncio.Event, ready: Callable[[list[str]], Awaitable[None]] | None = None
) -> None:
    """Serves until `stop` is set. `ready` is told the addresses that are listened on."""
    options.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    root_ca = _read(options.root_ca or options.client_ca)
    ranges = parse_ranges(options.service_ranges)
    server = Server.open(options.data_dir / "state.db", root_ca=root_ca, instance=options.instance, ranges=ranges)
    hooks = _build_hooks(server, options)
    server.hooks = hooks
    await server.start()
    try:
        await hooks.start()
        gc.freeze()
        async with background_tasks(server), serve(build_app(server), options) as addresses:
            log.info("serving", addresses=addresses, revision=server.store.revision)
            if ready is not None:
                await ready(addresses)
            await stop.wait()
            server.stop_watches()
    finally:
        await hooks.close()
        await server.close()


def _read(path: str) -> str:
    return Path(path).read_text() if path else ""


def _build_hooks(server: Server, options: Options) -> Hooks:
    if options.insecure:
        return Hooks()
    security = importlib.import_module("virt_local.apiserver.security")
    hooks: Hooks = security.build_hooks(server, options)
    return hooks
