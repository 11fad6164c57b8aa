"""The guest's network cards: on the TAP devices that virt-netsetup has made, or on passt."""

from __future__ import annotations

from virt_core.apis.bindings import AS_PASST, AS_SIDECAR_SAYS, AS_TAP, TAP, binding_of, row_of
from virt_core.apis.devices import Interface as InterfaceSpec
from virt_core.apis.interfaces import MOST_ACPI_INDEX
from virt_launcher.convert.context import Attachment, Context
from virt_launcher.convert.pci import parse_address
from virt_launcher.domain.devices import Interface, PortForward, PortRange
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError, WrongStateError

_MODELS = ("e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139")
#: passt has a socket for each port and protocol that it takes, but for those that the kernel hands out itself.
FILES_FOR_ALL_PORTS = 80_000


def configure_interfaces(context: Context, domain: Domain) -> None:
    for index, spec in enumerate(context.vmi.spec.domain.devices.interfaces):
        if spec.state == "absent":
            continue
        path = f"spec.domain.devices.interfaces[{index}]"
        attachment = context.attachments.get(spec.name)
        if attachment is None:
            raise WrongStateError(f"{path}: nobody has wired interface {spec.name!r}")
        # Of a plugin only this much is known here: whether there is a TAP for it.
        row = row_of(binding_of(spec), TAP if attachment.tap else "")
        if row is None or row.device not in (AS_TAP, AS_PASST, AS_SIDECAR_SAYS):
            raise InvalidVMIError(path, f"interface {spec.name!r} has no binding that can be made")
        if row.device == AS_TAP:
            domain.devices.interfaces.append(_by_tap(context, spec, attachment, path))
        elif row.device == AS_PASST:
            domain.devices.interfaces.append(_by_passt(context, spec, attachment, path))


def _by_tap(context: Context, spec: InterfaceSpec, attachment: Attachment, path: str) -> Interface:
    if not attachment.tap:
        raise WrongStateError(f"{path}: no TAP device was made for interface {spec.name!r}")
    interface = _card(context, spec, attachment, path)
    interface.type, interface.target, interface.target_managed = "ethernet", attachment.tap, False
    interface.mtu = attachment.mtu or None
    if attachment.queues > 1 and interface.model == context.virtio_model:
        interface.queues = attachment.queues
    return interface


def _by_passt(context: Context, spec: InterfaceSpec, attachment: Attachment, path: str) -> Interface:
    """libvirt starts it (virt_launcher.passt): the guest has the addresses of the Pod's interface, by passt's DHCP."""
    if not spec.ports and context.open_files < FILES_FOR_ALL_PORTS:
        raise InvalidVMIError(
            f"{path}.ports",
            f"to take all ports passt opens up to {FILES_FOR_ALL_PORTS} files, and here it may open"
            f" {context.open_files}; list the ports that the guest serves",
        )
    interface = _card(context, spec, attachment, path)
    interface.type, interface.backend, interface.source_dev = "user", "passt", attachment.pod_interface or None
    interface.backend_log = f"{context.machine_dir}/passt-{spec.name}.log"
    interface.port_forwards = _forwards(spec)
    return interface


def _forwards(spec: InterfaceSpec) -> list[PortForward]:
    """All ports, or those that are listed and no others."""
    if not spec.ports:
        return [PortForward(protocol=protocol) for protocol in ("tcp", "udp")]
    found = []
    for protocol in ("tcp", "udp"):
        ports = sorted({port.port for port in spec.ports if (port.protocol or "TCP").lower() == protocol})
        if ports:
            found.append(PortForward(protocol=protocol, ranges=[PortRange(start=port) for port in ports]))
    return found


def _card(context: Context, spec: InterfaceSpec, attachment: Attachment, path: str) -> Interface:
    interface = Interface(alias=f"ua-{spec.name}")
    interface.mac = attachment.mac or spec.mac_address.replace("-", ":") or None
    interface.model = _model(context, spec, path)
    interface.link = "down" if spec.state == "down" else None
    interface.boot_order = spec.boot_order
    # The boot ROM is megabytes that only a network boot needs. Without PCI there is none.
    interface.rom_enabled = None if spec.boot_order or not context.architecture.with_ports else False
    if not 0 <= spec.acpi_index <= MOST_ACPI_INDEX:
        raise InvalidVMIError(f"{path}.acpiIndex", f"{spec.acpi_index} is not between 1 and {MOST_ACPI_INDEX}")
    interface.acpi_index = spec.acpi_index or None
    if spec.pci_address:
        interface.address = parse_address(spec.pci_address, f"{path}.pciAddress")
    return interface


def _model(context: Context, spec: InterfaceSpec, path: str) -> str:
    if spec.model in ("", "virtio"):
        return context.virtio_model
    if spec.model not in _MODELS:
        raise InvalidVMIError(f"{path}.model", f"{spec.model!r} is not one of virtio, {', '.join(_MODELS)}")
    return spec.model
