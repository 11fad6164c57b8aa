"""Devices of the node that the guest has to itself: PCI and mediated devices by VFIO, USB devices.

Which ones they are the Pod's environment says: a device plugin names what it handed out, one variable for each
resource. Devices of the VMI take theirs in the order of the manifest, GPUs first. Those of a resource claim are told
of in files (`claimed.py`).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from virt_core.apis import names
from virt_core.apis.devices import GPU, HostDevice
from virt_launcher.convert.consoles import has_screen
from virt_launcher.convert.context import Context
from virt_launcher.convert.pci import parse_address
from virt_launcher.domain.devices import HostAddress, HostDev
from virt_launcher.errors import InvalidVMIError

_GPUS, _OTHERS = "spec.domain.devices.gpus", "spec.domain.devices.hostDevices"


@dataclass(frozen=True, slots=True)
class Wish:
    """A device as the manifest names it."""

    path: str
    #: How its alias begins.
    kind: str
    spec: GPU | HostDevice

    @property
    def field(self) -> str:
        """Where the manifest says which device it is."""
        return f"{self.path}.{'claimName' if self.spec.claim_name else 'deviceName'}"


def host_devices(context: Context) -> list[HostDev]:
    """Raises InvalidVMIError with the path of the device that the Pod was not given."""
    spec = context.vmi.spec.domain.devices
    wishes = [Wish(f"{_GPUS}[{i}]", "gpu", gpu) for i, gpu in enumerate(spec.gpus)]
    wishes += [Wish(f"{_OTHERS}[{i}]", "hostdevice", device) for i, device in enumerate(spec.host_devices)]
    _refuse_namesakes(wishes)
    pools = _pools([wish for wish in wishes if not wish.spec.claim_name], context.environment)
    found = [
        device
        for wish in wishes
        for device in ([_claimed(wish, context)] if wish.spec.claim_name else _take(wish, pools[wish.spec.device_name]))
    ]
    _configure_displays(context, wishes, found)
    return found


def _refuse_namesakes(wishes: Sequence[Wish]) -> None:
    seen: set[tuple[str, str]] = set()
    for wish in wishes:
        if (key := (wish.kind, wish.spec.name)) in seen:
            raise InvalidVMIError(f"{wish.path}.name", f"two devices are called {wish.spec.name!r}")
        seen.add(key)


@dataclass(slots=True)
class _Pool:
    """What the Pod was given of one resource: for each device of the VMI as many addresses as for the others."""

    addresses: list[tuple[str, str]]
    each: int


def _pools(wishes: Sequence[Wish], environment: Mapping[str, str]) -> dict[str, _Pool]:
    counts = Counter(wish.spec.device_name for wish in wishes)
    pools = {}
    for resource, count in counts.items():
        given = _given(resource, environment)
        pools[resource] = _Pool(given, len(given) // count)
    return pools


def _given(resource: str, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Prefix of the variable and address, of each address that stands in one."""
    return [
        (prefix, address.strip())
        for prefix in _MAKERS
        for address in environment.get(names.resource_env(prefix, resource), "").split(",")
        if address.strip()
    ]


def _take(wish: Wish, pool: _Pool) -> list[HostDev]:
    """One device; of USB devices that belong together all."""
    resource = wish.spec.device_name
    if not resource:
        raise InvalidVMIError(f"{wish.path}.deviceName", "must name a resource of a device plugin")
    count = pool.each if pool.addresses and pool.addresses[0][0] == names.ENV_PREFIX_USB else 1
    taken, pool.addresses = pool.addresses[:count], pool.addresses[count:]
    if not taken:
        looked = " or ".join(names.resource_env(prefix, resource) for prefix in _MAKERS)
        why = f"the Pod was given no device of the resource {resource}: none (more) stands in {looked}"
        raise InvalidVMIError(f"{wish.path}.deviceName", why)
    devices = [_MAKERS[prefix](address, wish) for prefix, address in taken]
    for number, device in enumerate(devices):
        prefix = "usb-host" if device.type == "usb" else wish.kind
        device.alias = f"ua-{prefix}-{wish.spec.name}" + (f"-{number}" if number else "")
    return devices


def _claimed(wish: Wish, context: Context) -> HostDev:
    from virt_launcher.convert.claimed import claimed_device  # Few machines have one.

    claim, request = wish.spec.claim_name or "", wish.spec.request_name or ""
    claims = context.vmi.spec.resource_claims
    prefix, address = claimed_device(wish.path, claim, request, claims, context.device_metadata)
    device = _MAKERS[prefix](address, wish)
    device.alias = f"ua-{wish.kind}-{wish.spec.name}"
    return device


def _pci(address: str, wish: Wish) -> HostDev:
    """Bound to VFIO already, so libvirt has nothing to manage."""
    place = parse_address(address, wish.field)
    source = HostAddress(domain=place.domain, bus=place.bus, slot=place.slot, function=place.function)
    return HostDev(mode="subsystem", type="pci", managed=False, source=source)


def _mediated(address: str, wish: Wish) -> HostDev:
    try:
        source = HostAddress(uuid=str(uuid.UUID(address)))
    except ValueError as error:
        raise InvalidVMIError(wish.field, f"{address!r} is not the UUID of a mediated device") from error
    return HostDev(mode="subsystem", type="mdev", model="vfio-pci", source=source)


def _usb(address: str, wish: Wish) -> HostDev:
    bus, _, number = address.partition(":")
    if not (bus.isdecimal() and number.isdecimal()):
        raise InvalidVMIError(wish.field, f"{address!r} is not bus and number of a USB device")
    source = HostAddress(bus=str(int(bus)), device=str(int(number)))
    return HostDev(mode="subsystem", type="usb", source=source)


#: By the prefix of the variable that names such devices.
_MAKERS: Mapping[str, Callable[[str, Wish], HostDev]] = {
    names.ENV_PREFIX_PCI: _pci,
    names.ENV_PREFIX_MDEV: _mediated,
    names.ENV_PREFIX_USB: _usb,
}


def _configure_displays(context: Context, wishes: Sequence[Wish], devices: Sequence[HostDev]) -> None:
    """A virtual GPU that says so is the guest's screen; if none says anything, the first one is."""
    screen = has_screen(context)
    by_alias = {device.alias: device for device in devices if device.type == "mdev"}
    gpus = [
        (wish, wish.spec, device)
        for wish in wishes
        if isinstance(wish.spec, GPU) and (device := by_alias.get(f"ua-gpu-{wish.spec.name}")) is not None
    ]
    silent = all(gpu.virtual_gpu_options is None or gpu.virtual_gpu_options.display is None for _, gpu, _ in gpus)
    for number, (wish, gpu, device) in enumerate(gpus):
        display = gpu.virtual_gpu_options.display if gpu.virtual_gpu_options is not None else None
        if display is None:
            device.display = device.ramfb = True if screen and silent and number == 0 else None
        elif display.enabled is not False:
            if not screen:
                why = "a display needs a graphics device, and the machine has none"
                raise InvalidVMIError(f"{wish.path}.virtualGPUOptions.display", why)
            device.display = True
            device.ramfb = True if display.ram_fb is None or display.ram_fb.enabled is not False else None
