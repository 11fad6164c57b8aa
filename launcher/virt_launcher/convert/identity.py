"""Who the machine is: its name, its UUID, and what the guest reads in SMBIOS."""

from __future__ import annotations

import uuid

from virt_launcher.convert.context import Context
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Entry, SysInfo
from virt_launcher.errors import InvalidVMIError


def configure_identity(context: Context, domain: Domain) -> None:
    meta = context.vmi.metadata
    domain.name = f"{meta.namespace}_{meta.name}"
    domain.vmi_uid = meta.uid
    domain.uuid = machine_uuid(context)
    domain.type = "kvm" if context.kvm else "qemu"
    if context.foreign:
        domain.devices.emulator = f"/usr/bin/qemu-system-{context.architecture.name}"


def configure_sysinfo(context: Context, domain: Domain) -> None:
    if not context.architecture.smbios:
        return
    smbios, firmware, chassis = context.smbios, context.vmi.spec.domain.firmware, context.vmi.spec.domain.chassis
    system = {
        "manufacturer": smbios.manufacturer,
        "product": smbios.product,
        "version": smbios.version,
        "serial": firmware.serial if firmware is not None else "",
        "uuid": machine_uuid(context),
        "sku": smbios.sku,
        "family": smbios.family,
    }
    domain.sysinfo = SysInfo(type="smbios", system=_entries(system))
    domain.os.smbios = "sysinfo"
    if chassis is not None:
        names = ("manufacturer", "version", "serial", "asset", "sku")
        domain.sysinfo.chassis = _entries({name: getattr(chassis, name) for name in names})


def machine_uuid(context: Context) -> str:
    """The firmware's, which admission fills in; else the VMI's own UID, so that it is stable."""
    firmware = context.vmi.spec.domain.firmware
    text = firmware.uuid if firmware is not None and firmware.uuid else context.vmi.metadata.uid
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise InvalidVMIError("spec.domain.firmware.uuid", f"{text!r} is not a UUID") from error


def _entries(values: dict[str, str]) -> list[Entry]:
    return [Entry(name=name, value=value) for name, value in values.items() if value]
