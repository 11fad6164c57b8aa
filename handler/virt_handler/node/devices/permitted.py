"""Host devices that the KubeVirt object permits by name: PCI and mediated devices over VFIO, USB devices.

A device that was there and is not any more stays in the list as unhealthy: the kubelet then gives it to nobody, and
whoever looks at the node sees that something is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.configparts import PermittedHostDevices, USBHostDevice
from virt_core.kube.configvalues import ClusterConfig
from virt_core.runtime.logs import get_logger
from virt_handler.node.devices import sysfs
from virt_handler.node.devices.units import Allotment, Host, Pool, Unit, UnitGoneError, unique

log = get_logger(__name__)

VFIO = "/dev/vfio/vfio"
#: The kubelet's limit for the id of a device.
_MAX_ID = 63
Finder = Callable[[], Iterable[Unit]]


@dataclass(slots=True)
class HostDevices:
    """The devices of one resource, found anew at every look. Used by the manager's thread and by gRPC's."""

    resource: str
    host: Host
    find: Finder
    env_prefix: str
    watched: tuple[str, ...]
    #: Devices that are there and given to nobody any more.
    withheld: Container[str] = ()
    _known: dict[str, Unit] = field(default_factory=dict)

    def look(self) -> list[Unit]:
        present = {unit.id: replace(unit, healthy=self._may_give(unit)) for unit in self.find()}
        gone = {key: replace(unit, healthy=False) for key, unit in self._known.items() if key not in present}
        self._known = dict(sorted((gone | present).items()))
        return list(self._known.values())

    def paths(self) -> list[str]:
        return [*self.watched, *(node for unit in self._known.values() for node in unit.nodes)]

    def allot(self, ids: Iterable[str]) -> Allotment:
        units = {unit.id: unit for unit in self.look()}
        chosen = []
        for key in ids:
            if key not in units or not units[key].healthy:
                raise UnitGoneError(f"{self.resource}: device {key} is not usable on this node now")
            chosen.append(units[key])
        variable = names.resource_env(self.env_prefix, self.resource)
        return Allotment(
            unique(node for unit in chosen for node in unit.nodes),
            {variable: ",".join(unit.address for unit in chosen)},
        )

    def _may_give(self, unit: Unit) -> bool:
        return unit.id not in self.withheld and all(self.host.device(node) is not None for node in unit.nodes)


def permitted_pools(config: ClusterConfig, host: Host, withheld: Container[str] = ()) -> dict[str, Pool]:
    """A pool for each permitted resource that is ours to offer, by its name."""
    permitted = from_plain(dict(config.permitted_host_devices), PermittedHostDevices)
    found: dict[str, Pool] = {}
    for pool in [*_pci(permitted, host), *_mediated(permitted, host, withheld), *_usb(permitted, host)]:
        if pool.resource in found or pool.resource.startswith(names.RESOURCE_DOMAIN):
            log.error("a resource of permittedHostDevices has the name of another kind", resource=pool.resource)
            continue
        found[pool.resource] = pool
    return found


def _pci(permitted: PermittedHostDevices, host: Host) -> Iterator[Pool]:
    for resource, selectors in _by_resource(
        (entry.resource_name, sysfs.normal_selector(entry.pci_vendor_selector))
        for entry in permitted.pci_host_devices
        if not entry.external_resource_provider
    ).items():
        find = _pci_finder(host, selectors)
        yield HostDevices(resource, host, find, names.ENV_PREFIX_PCI, (VFIO,))


def _pci_finder(host: Host, selectors: frozenset[str]) -> Finder:
    """One unit for each IOMMU group: the group as a whole belongs to one guest or to none."""

    def find() -> Iterable[Unit]:
        groups: dict[str, Unit] = {}
        for function in sysfs.pci_functions(host.path("/sys")):
            if function.selector in selectors and function.driver == sysfs.VFIO_DRIVER:
                unit = _vfio(function.address, function.iommu_group, function.numa)
                groups.setdefault(function.iommu_group, unit)
        return groups.values()

    return find


def _mediated(permitted: PermittedHostDevices, host: Host, withheld: Container[str]) -> Iterator[Pool]:
    for resource, types in _by_resource(
        (entry.resource_name, sysfs.normal_type(entry.mdev_name_selector))
        for entry in permitted.mediated_devices
        if not entry.external_resource_provider
    ).items():
        find = _mediated_finder(host, types)
        yield HostDevices(resource, host, find, names.ENV_PREFIX_MDEV, (VFIO,), withheld)


def _mediated_finder(host: Host, types: frozenset[str]) -> Finder:
    def find() -> Iterable[Unit]:
        return [
            _vfio(device.uuid, device.iommu_group, device.numa)
            for device in sysfs.mediated_devices(host.path("/sys"))
            if device.type_name in types
        ]

    return find


def _vfio(address: str, group: str, numa: int | None) -> Unit:
    return Unit(address, (VFIO, f"/dev/vfio/{group}"), address=address, numa=numa)


def _usb(permitted: PermittedHostDevices, host: Host) -> Iterator[Pool]:
    seen: set[str] = set()
    for entry in permitted.usb:
        if not entry.external_resource_provider and entry.selectors and entry.resource_name not in seen:
            seen.add(entry.resource_name)
            find = _usb_finder(host, entry)
            yield HostDevices(entry.resource_name, host, find, names.ENV_PREFIX_USB, ("/dev/bus/usb/001/001",))


def _usb_finder(host: Host, entry: USBHostDevice) -> Finder:
    """One unit takes one device for each selector, so several that belong together go to the same guest."""
    wanted = [sysfs.normal_selector(f"{selector.vendor}:{selector.product}") for selector in entry.selectors]

    def find() -> Iterable[Unit]:
        free = sysfs.usb_devices(host.path("/sys"))
        while len(chosen := _choose(free, wanted)) == len(wanted):
            free = [device for device in free if device not in chosen]
            identity = _identity([device.name for device in chosen])
            address = ",".join(device.address for device in chosen)
            yield Unit(identity, tuple(device.node for device in chosen), address=address)

    return find


def _identity(ports: list[str]) -> str:
    """By the ports they are plugged into: a device that comes back has another number but the same place."""
    text = ",".join(ports)
    return text if len(text) <= _MAX_ID else hashlib.sha256(text.encode()).hexdigest()[:_MAX_ID]


def _choose(free: list[sysfs.UsbDevice], wanted: list[str]) -> list[sysfs.UsbDevice]:
    chosen: list[sysfs.UsbDevice] = []
    for selector in wanted:
        found = next((device for device in free if device.selector == selector and device not in chosen), None)
        if found is not None:
            chosen.append(found)
    return chosen


def _by_resource(pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for resource, selector in pairs:
        found.setdefault(resource, set()).add(selector)
    return {resource: frozenset(selectors) for resource, selectors in found.items()}
