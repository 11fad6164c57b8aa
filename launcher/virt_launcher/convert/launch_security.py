"""Memory that the node cannot read: AMD SEV, SEV-SNP, Intel TDX and the protected guests of s390x."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.launchsecurity import PV, SEV_ES, SNP, TDX, protection
from virt_launcher.convert.context import Context
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import LaunchSecurity

#: Nobody may debug the guest; its registers are hidden as well.
_NO_DEBUG, _ENCRYPTED_STATE = 0x1, 0x4
#: Bit 17 must be set; bit 16: several threads of a core may run it.
_SNP_POLICY = 0x30000


def configure_launch_security(context: Context, domain: Domain) -> None:
    """After all devices: the guest's own memory is closed to them too, so they must ask its IOMMU."""
    kind = protection(context.vmi.spec)
    if not kind:
        return
    if kind == TDX:
        domain.launch_security = _of_tdx(context)
        if domain.features is not None:
            domain.features.pmu = False
        return
    domain.launch_security = LaunchSecurity(type=PV) if kind == PV else _of_sev(context, kind)
    _ask_iommu(domain)


def _of_sev(context: Context, kind: str) -> LaunchSecurity:
    if kind == SNP:
        return LaunchSecurity(type="sev-snp", policy=f"0x{_SNP_POLICY:08x}")
    policy = _NO_DEBUG | (_ENCRYPTED_STATE if kind == SEV_ES else 0)
    found = LaunchSecurity(type="sev", policy=f"0x{policy:04x}")
    security = context.vmi.spec.domain.launch_security
    if security is not None and security.sev is not None:
        found.dh_cert, found.session = security.sev.dh_cert or None, security.sev.session or None
    return found


def _of_tdx(context: Context) -> LaunchSecurity:
    path = context.vmi.metadata.annotations.get(names.ANNOTATION_QUOTE_SOCKET)
    return LaunchSecurity(type="tdx", quote_socket=path or None)


def _ask_iommu(domain: Domain) -> None:
    devices = domain.devices
    for disk in devices.disks:
        disk.iommu = True if disk.bus == "virtio" else None
    for card in devices.interfaces:
        card.iommu = True if (card.model or "").startswith("virtio") else None
    for controller in devices.controllers:
        controller.iommu = True if (controller.model or "").startswith("virtio") else None
    for pointer in devices.inputs:
        pointer.iommu = True if pointer.bus == "virtio" else None
    for rng in devices.rngs:
        rng.iommu = True
    if devices.memballoon is not None and devices.memballoon.model != "none":
        devices.memballoon.iommu = True
    if devices.vsock is not None:
        devices.vsock.iommu = True
