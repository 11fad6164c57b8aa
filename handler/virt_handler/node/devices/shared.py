"""Devices that any number of machines use at once: /dev/kvm, /dev/net/tun, /dev/vhost-net, /dev/userfaultfd ….

The count only says how many VMs the node takes; each unit is the same device node.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from virt_core.apis import names
from virt_core.kube.configvalues import ClusterConfig
from virt_handler.node.capabilities import cpu_virtualises
from virt_handler.node.devices.sockets import SharedSocket, sockets
from virt_handler.node.devices.units import Allotment, Host, Unit, UnitGoneError

#: As many VMs as a node takes when the cluster does not say otherwise.
DEFAULT_COUNT = 1000
MAX_COUNT = 10_000

Fixed: TypeAlias = "SharedDevice | SharedSocket"


@dataclass(frozen=True, slots=True)
class SharedDevice:
    resource: str
    path: str
    host: Host
    count: Callable[[], int]
    #: What must be true beside the device: a node that opens does not yet run guests.
    extra: Callable[[], bool] = lambda: True
    #: The feature gate that opens it to guests; "" for what every machine may use.
    gate: str = ""

    @property
    def common(self) -> bool:
        """Whether the node waits for it before it takes machines."""
        return not self.gate

    def allowed(self, config: ClusterConfig) -> bool:
        return not self.gate or config.has(self.gate)

    @property
    def usable(self) -> bool:
        return self.host.device(self.path) is not None and _opens(self.host.path(self.path)) and self.extra()

    def look(self) -> list[Unit]:
        name, healthy = self.resource.rpartition("/")[2], self.usable
        return [Unit(f"{name}{number}", (self.path,), healthy) for number in range(self.count())]

    def paths(self) -> list[str]:
        return [self.path]

    def allot(self, ids: Iterable[str]) -> Allotment:
        del ids  # One is like the other.
        if not self.usable:
            raise UnitGoneError(f"the node has no usable {self.path} any more")
        return Allotment((self.path,))


def _opens(path: str) -> bool:
    """The open also makes the kernel load the module of a device that nobody has used yet."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return True


def fixed_devices(host: Host, config: Callable[[], ClusterConfig]) -> list[Fixed]:
    """What every machine may need; offered from the moment that the node has it."""

    def count() -> int:
        return machines_per_node(config().raw)

    return [
        SharedDevice(names.RESOURCE_KVM, "/dev/kvm", host, count, cpu_virtualises),
        SharedDevice(names.RESOURCE_TUN, "/dev/net/tun", host, count),
        SharedDevice(names.RESOURCE_VHOST_NET, "/dev/vhost-net", host, count),
        SharedDevice(names.RESOURCE_USERFAULTFD, "/dev/userfaultfd", host, count),
        SharedDevice(names.RESOURCE_VHOST_VSOCK, "/dev/vhost-vsock", host, count, gate="VSOCK"),
        SharedDevice(names.RESOURCE_SEV, "/dev/sev", host, count, gate="WorkloadEncryptionSEV"),
        *sockets(host, config, count),
    ]


def machines_per_node(configuration: Mapping[str, object]) -> int:
    """`virtualMachineInstancesPerNode` of the KubeVirt object, within reason."""
    wanted = configuration.get("virtualMachineInstancesPerNode")
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        return DEFAULT_COUNT
    return min(wanted, MAX_COUNT)
