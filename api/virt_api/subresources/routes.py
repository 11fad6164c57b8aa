"""Every subresource: its method, its path, the right that it needs, and who serves it. No other is served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from virt_api.subresources import (
    actions,
    evacuation,
    expand,
    guest,
    hibernate,
    lifecycle,
    memorydump,
    migrate,
    network,
    objectgraph,
    profiler,
    sev,
    streams,
    volumes,
)
from virt_api.subresources.call import Call

VM = "virtualmachines"
VMI = "virtualmachineinstances"

Act = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` is what follows the object's name. The right is `resource/subresource`, by default for the whole path."""

    method: str
    resource: str
    path: str
    act: Act
    right: str = ""
    #: Of a namespace, not of an object.
    nameless: bool = False
    #: Not even of a namespace.
    clusterwide: bool = False

    @property
    def subresource(self) -> str:
        return "" if self.nameless or self.clusterwide else self.right or self.path

    @property
    def template(self) -> str:
        """The path in the words of aiohttp, after the version."""
        if self.clusterwide:
            return f"/{self.resource}"
        of = self.resource if self.nameless else f"{self.resource}/{{name}}/{self.path}"
        return f"/namespaces/{{namespace}}/{of}"


ROUTES = (
    Route("PUT", VM, "start", lifecycle.start),
    Route("PUT", VM, "stop", lifecycle.stop),
    Route("PUT", VM, "restart", lifecycle.restart),
    Route("PUT", VM, "hibernate", hibernate.hibernate),
    Route("PUT", VM, "addvolume", volumes.add_to_vm),
    Route("PUT", VM, "removevolume", volumes.remove_from_vm),
    Route("PUT", VM, "memorydump", memorydump.dump),
    Route("PUT", VM, "removememorydump", memorydump.remove),
    Route("PUT", VM, "evacuate/cancel", evacuation.cancel_of_vm),
    Route("PUT", VM, "migrate", migrate.migrate),
    Route("GET", VM, "expand-spec", expand.of_vm),
    Route("GET", VM, "objectgraph", objectgraph.of_vm),
    Route("GET", VM, "portforward/{port}", streams.port_forward_to_vm, right="portforward"),
    Route("GET", VM, "portforward/{port}/{protocol}", streams.port_forward_to_vm, right="portforward"),
    Route("PUT", VMI, "pause", actions.pause),
    Route("PUT", VMI, "unpause", actions.unpause),
    Route("PUT", VMI, "freeze", actions.freeze),
    Route("PUT", VMI, "unfreeze", actions.unfreeze),
    Route("PUT", VMI, "softreboot", actions.soft_reboot),
    Route("PUT", VMI, "reset", actions.reset),
    Route("PUT", VMI, "addvolume", volumes.add_to_vmi),
    Route("PUT", VMI, "removevolume", volumes.remove_from_vmi),
    Route("PUT", VMI, "evacuate/cancel", evacuation.cancel_of_vmi),
    Route("GET", VMI, "migrationprogress", migrate.progress),
    Route("GET", VMI, "networkreport", network.report),
    Route("GET", VMI, "guestosinfo", guest.os_info),
    Route("GET", VMI, "userlist", guest.user_list),
    Route("GET", VMI, "filesystemlist", guest.filesystem_list),
    Route("GET", VMI, "objectgraph", objectgraph.of_vmi),
    Route("GET", VMI, "console", streams.console),
    Route("GET", VMI, "vnc", streams.vnc),
    Route("GET", VMI, "vnc/screenshot", guest.screenshot),
    Route("GET", VMI, "usbredir", streams.usbredir),
    Route("GET", VMI, "vsock", streams.vsock),
    Route("GET", VMI, "portforward/{port}", streams.port_forward_to_vmi, right="portforward"),
    Route("GET", VMI, "portforward/{port}/{protocol}", streams.port_forward_to_vmi, right="portforward"),
    Route("GET", VMI, "sev/fetchcertchain", sev.fetch_cert_chain),
    Route("GET", VMI, "sev/querylaunchmeasurement", sev.query_launch_measurement),
    Route("PUT", VMI, "sev/setupsession", sev.set_up_session),
    Route("PUT", VMI, "sev/injectlaunchsecret", sev.inject_launch_secret),
    Route("PUT", "expand-vm-spec", "", expand.of_body, nameless=True),
    Route("GET", "start-cluster-profiler", "", profiler.start, clusterwide=True),
    Route("GET", "stop-cluster-profiler", "", profiler.stop, clusterwide=True),
    Route("GET", "dump-cluster-profiler", "", profiler.dump, clusterwide=True),
)


def listed(routes: tuple[Route, ...]) -> list[tuple[str, str, str]]:
    """For discovery: name, kind and method of each, once."""
    kinds = {VM: "VirtualMachine", VMI: "VirtualMachineInstance"}
    rows = [
        (f"{route.resource}/{route.subresource}".rstrip("/"), kinds.get(route.resource, ""), route.method)
        for route in routes
        if not route.clusterwide
    ]
    return list(dict.fromkeys(rows))
