"""The guest's network cards: on the TAP devices that virt-netsetup has made, or on passt."""

from __future__ import annotations

from virt_core.apis.bindings import AS_PASST, AS_SIDECAR_SAYS, AS_TAP, DEVICES, TAP, binding_of, row_of
from virt_core.apis.devices import Interface as InterfaceSpec
from virt_core.apis.interfaces import MOST_ACPI_INDEX
from virt_launcher.convert.context import Attachment, Context
from virt_launcher.convert.pci import parse_address
from virt_launcher.domain.devices import Interface
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import QemuArgument, QemuDevice, QemuProperty
from virt_launcher.errors import InvalidVMIError, WrongStateError

_MODELS = ("e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139")
#: In the machine's directory. There is one NIC on the Pod network at most.
PASST_SOCKET = "passt.sock"
_NETDEV = "passt0"


def configure_interfaces(context: Context, domain: Domain) -> None:
    for index, spec in enumerate(context.vmi.spec.domain.devices.interfaces):
        if spec.state == "absent" or binding_of(spec) in DEVICES:
            continue
        path = f"spec.domain.devices.interfaces[{index}]"
        attachment = context.attachments.get(spec.name)
        if attachment is None:
            raise WrongStateError(f"{path}: no TAP device was made for interface {spec.name!r}")
        # Of a plugin only this much is known here: whether there is a TAP for it.
        row = row_of(binding_of(spec), TAP if attachment.tap else "")
        if row is None or row.device not in (AS_TAP, AS_PASST, AS_SIDECAR_SAYS):
            raise InvalidVMIError(path, f"interface {spec.name!r} has no binding that can be made")
        if row.device == AS_TAP:
            domain.devices.interfaces.append(_by_tap(context, spec, attachment, path))
        elif row.device == AS_PASST:
            domain.devices.interfaces.append(_by_passt(context, spec, attachment, path, domain))


def _by_tap(context: Context, spec: InterfaceSpec, attachment: Attachment, path: str) -> Interface:
    if not attachment.tap:
        raise WrongStateError(f"{path}: no TAP device was made for interface {spec.name!r}")
    interface = _card(context, spec, attachment, path)
    interface.type, interface.target, interface.target_managed = "ethernet", attachment.tap, False
    interface.mtu = attachment.mtu or None
    if attachment.queues > 1 and interface.model == context.virtio_model:
        interface.queues = attachment.queues
    return interface


def _by_passt(context: Context, spec: InterfaceSpec, attachment: Attachment, path: str, domain: Domain) -> Interface:
    """A card that QEMU ties to passt's socket, where libvirt knows of a network of QEMU's own that nobody is on:
    libvirt on Debian 12 knows no passt, and starts it elsewhere with what a Pod must not do (decisions/0040)."""
    interface = _card(context, spec, attachment, path)
    interface.type = "user"
    socket = f"{context.machine_dir}/{PASST_SOCKET}".replace(",", ",,")
    words = ("-netdev", f"stream,id={_NETDEV},server=off,addr.type=unix,addr.path={socket}")
    domain.arguments.extend(QemuArgument(value=word) for word in words)
    netdev = QemuProperty(name="netdev", type="string", value=_NETDEV)
    domain.overrides.append(QemuDevice(alias=interface.alias, properties=[netdev]))
    return interface


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
