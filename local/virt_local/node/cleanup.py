"""Takes a node apart for `virt-local down`: its Pods, mounts, namespaces, cgroups, addresses and directories."""

from __future__ import annotations

from virt_core.runtime.clock import SystemClock
from virt_core.runtime.logs import get_logger
from virt_local.node import kernel
from virt_local.node.assemble import NodeSettings, cni_of, containers_of
from virt_local.node.layout import NodeLayout, remove_tree
from virt_local.node.networks.keeper import PodNetworks
from virt_local.node.networks.vocabulary import NetworkError
from virt_local.node.pods.adopt import Adopter
from virt_local.node.pods.ending import Ender
from virt_local.node.runtime import cgroups
from virt_local.node.sandbox import Sandboxes

log = get_logger(__name__)


def purge(settings: NodeSettings) -> list[str]:
    """Run it in the node's network namespace, after the node process has ended. Returns the Pods that it ended."""
    layout, clock = NodeLayout(settings.root), SystemClock()
    layout.make()
    cni = cni_of(settings)
    sandboxes = Sandboxes(layout, cni, clock, PodNetworks(layout, cni.plugins))
    containers = containers_of(settings, layout, clock)
    ender = Ender(layout, sandboxes, containers, settings.cgroup)
    ended = []
    for state in Adopter(layout, sandboxes, containers, clock).found():
        ended.append(state.uid)
        try:
            ender.purge(state)
        except NetworkError as err:
            # The namespace of the whole node goes next, and takes the links with it.
            log.warning("the network of a Pod was not released", uid=state.uid, error=str(err))
    cgroups.remove(settings.cgroup)
    cgroups.remove_if_empty(settings.cgroup.rpartition("/")[0])
    kernel.unmount_below(layout.root)
    remove_tree(layout.root)
    return ended
