"""The guest's network cards, on the TAP devices that virt-netsetup has made."""

from __future__ import annotations

from virt_core.apis.bindings import DEVICES, WIRED, binding_of
from virt_core.apis.devices import Interface as InterfaceSpec
from virt_core.apis.interfaces import MOST_ACPI_INDEX
from virt_launcher.convert.context import Attachment, Context
from virt_launcher.convert.pci import parse_address
from virt_launcher.domain.devices import Interface
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError, WrongStateError

_MODELS = ("e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139")


def configure_interfaces(context: Context, domain: Domain) -> None:
    for index, spec in enumerate(context.vmi.spec.domain.devices.interfaces):
        if spec.state == "absent" or binding_of(spec) in DEVICES:
            continue
        path = f"spec.domain.devices.interfaces[{index}]"
        attachment = context.attachments.get(spec.name)
        if binding_of(spec) not in WIRED:
            raise InvalidVMIError(path, f"interface {spec.name!r} has neither the masquerade nor the bridge binding")
        if attachment is None:
            raise WrongStateError(f"{path}: no TAP device was made for interface {spec.name!r}")
        domain.devices.interfaces.append(_interface(context, spec, attachment, path))


def _interface(context: Context, spec: InterfaceSpec, attachment: Attachment, path: str) -> Interface:
    interface = Interface(type="ethernet", target=attachment.tap, target_managed=False, alias=f"ua-{spec.name}")
    interface.mac = attachment.mac or spec.mac_address.replace("-", ":") or None
    interface.mtu = attachment.mtu or None
    interface.model = _model(context, spec, path)
    if attachment.queues > 1 and interface.model == context.virtio_model:
        interface.queues = attachment.queues
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
