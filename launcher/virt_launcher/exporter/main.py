"""`virt-exporter`: process 1 of an exporter Pod. The plan is in its environment, the claims are mounted to be read."""

from __future__ import annotations

import os
import resource
import signal
import threading
from datetime import UTC, datetime
from typing import Any

from virt_core.apis import exportplan
from virt_core.apis.base import decode
from virt_core.apis.exportplan import ExportPlan
from virt_core.runtime.times import parse_rfc3339
from virt_launcher.exporter.handler import Handler, Served
from virt_launcher.exporter.server import Server, tls_context

_FILES = 4096


def main() -> int:
    plan = decode(os.environ[exportplan.PLAN], ExportPlan)
    _limit()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = serve(Served(plan), ("::" if _has_ipv6() else "0.0.0.0", exportplan.PORT))
    stop.wait(_seconds_left(plan.deadline))
    server.shutdown()
    return 0


def serve(served: Served, address: tuple[str, int]) -> Server:
    """In a thread that ends with the process."""
    bound: Any = type("Bound", (Handler,), {"served": served})
    server = Server(address, bound, tls_context(served.tls_directory), served.places)
    threading.Thread(target=server.serve_forever, name="export", daemon=True).start()
    return server


def _limit() -> None:
    """It writes nothing."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def _seconds_left(deadline: str) -> float | None:
    if not deadline:
        return None
    return max((parse_rfc3339(deadline) - datetime.now(UTC)).total_seconds(), 0.0)


def _has_ipv6() -> bool:
    return os.path.exists("/proc/net/if_inet6")
