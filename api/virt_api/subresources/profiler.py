"""The cluster profiler: off unless the cluster's configuration turns it on (developerConfiguration.clusterProfiler).

It measures the virt-api that answers. The other programs serve no port on which virt-api could ask them with an
identity, and an open one would let anybody in the cluster slow them down; so the answer names the one component that it
is about.
"""

from __future__ import annotations

import base64
import socket

from aiohttp import web

from virt_api.problems import Problem
from virt_api.subresources.bodies import ClusterProfilerRequest
from virt_api.subresources.call import Call, json_response
from virt_core.apis import names
from virt_core.runtime.profiler import Profiler

COMPONENT = "virt-api"
MAX_PAGE = 20

PROFILER = Profiler()


async def start(call: Call) -> web.Response:
    _require_switched_on(call)
    PROFILER.start()
    return web.Response()


async def stop(call: Call) -> web.Response:
    _require_switched_on(call)
    PROFILER.stop()
    return web.Response()


async def dump(call: Call) -> web.Response:
    _require_switched_on(call)
    wanted = await call.body(ClusterProfilerRequest)
    if not 0 < wanted.page_size <= MAX_PAGE:
        raise Problem(400, f"pageSize must be between 1 and {MAX_PAGE}")
    text = PROFILER.dump()
    if not text or not _selected(wanted.label_selector):
        return web.Response(status=204)
    data = {"stacks": base64.b64encode(text.encode()).decode()}
    return json_response({"componentResults": {f"{COMPONENT}-{socket.gethostname()}": {"pprofData": data}}})


def _require_switched_on(call: Call) -> None:
    developer = call.config.raw.get("developerConfiguration") or {}
    if not developer.get("clusterProfiler"):
        raise Problem(403, "the cluster profiler is off: developerConfiguration.clusterProfiler of the KubeVirt object")


def _selected(selector: str) -> bool:
    """Whether a selector such as `kubevirt.io=virt-api` is for us. Raises Problem 400."""
    for term in filter(None, (part.strip() for part in selector.split(","))):
        key, equals, value = term.partition("=")
        if not equals or key.endswith("!"):
            raise Problem(400, f"{term!r}: only key=value is understood here")
        if (key.strip(), value.lstrip("=").strip()) != (names.LABEL_APP, COMPONENT):
            return False
    return True
