"""Which machines keep what their firmware and their TPM store, beyond a stop. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virt_core.apis.vmi import VirtualMachineInstanceSpec


def keeps_variables(spec: VirtualMachineInstanceSpec) -> bool:
    """The variables of UEFI."""
    firmware = spec.domain.firmware
    efi = firmware.bootloader.efi if firmware is not None and firmware.bootloader is not None else None
    return efi is not None and bool(efi.persistent)


def keeps_tpm(spec: VirtualMachineInstanceSpec) -> bool:
    tpm = spec.domain.devices.tpm
    return tpm is not None and tpm.enabled is not False and bool(tpm.persistent)


def keeps_state(spec: VirtualMachineInstanceSpec) -> bool:
    """Whether there must be a claim for it."""
    return keeps_variables(spec) or keeps_tpm(spec)
