"""What runs first: the machine type, BIOS or UEFI, a kernel without boot loader, and what a reboot means."""

from __future__ import annotations

import os
from dataclasses import dataclass

from virt_launcher.convert.context import ARCHITECTURES, Context
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import AcpiTable, QemuArgument
from virt_launcher.errors import InvalidVMIError

_BOOT_MENU_MS = 10_000
#: libvirt that knows of tables besides SLIC.
_MSDM_SINCE = 11_002_000
#: Where Ignition looks.
_IGNITION = "opt/com.coreos/config"


@dataclass(frozen=True, slots=True)
class Ovmf:
    """A pair of UEFI files as one distribution ships it."""

    code: str
    variables: str

    @property
    def present(self) -> bool:
        return os.path.exists(self.code) and os.path.exists(self.variables)


_SECURE = (
    Ovmf("/usr/share/OVMF/OVMF_CODE_4M.ms.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"),
    Ovmf("/usr/share/OVMF/OVMF_CODE.secboot.fd", "/usr/share/OVMF/OVMF_VARS.secboot.fd"),
    Ovmf("/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", "/usr/share/edk2/ovmf/OVMF_VARS.secboot.fd"),
)
_PLAIN = (
    Ovmf("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    Ovmf("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    Ovmf("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
)


def configure_os(context: Context, domain: Domain) -> None:
    machine = context.vmi.spec.domain.machine
    domain.os.type = "hvm"
    domain.os.arch = ARCHITECTURES[context.vmi.spec.architecture]
    domain.os.machine = machine.type if machine is not None and machine.type else "q35"
    if context.vmi.spec.start_strategy == "Paused":
        domain.os.bootmenu, domain.os.bootmenu_timeout = True, _BOOT_MENU_MS


def configure_bootloader(context: Context, domain: Domain) -> None:
    firmware = context.vmi.spec.domain.firmware
    loader = firmware.bootloader if firmware is not None else None
    if loader is not None and loader.bios is not None and loader.bios.use_serial:
        domain.os.bios_useserial = True
    if loader is not None and loader.efi is not None:
        _configure_efi(context, domain, loader.efi.secure_boot is not False)


def _configure_efi(context: Context, domain: Domain, secure: bool) -> None:
    candidates = _SECURE if secure else _PLAIN
    found = next((pair for pair in candidates if pair.present), None)
    if found is None:
        path = "spec.domain.firmware.bootloader.efi"
        kind = "UEFI with secure boot" if secure else "UEFI"
        looked = ", ".join(pair.code for pair in candidates)
        why = f"there is no {kind} firmware where the launcher runs (looked for {looked}); Debian's package is ovmf"
        raise InvalidVMIError(path, why)
    domain.os.loader, domain.os.loader_type = found.code, "pflash"
    domain.os.loader_readonly, domain.os.loader_secure = True, secure
    domain.os.nvram = f"{context.machine_dir}/efi-variables.fd"
    domain.os.nvram_template = found.variables


def configure_kernel(context: Context, domain: Domain) -> None:
    firmware = context.vmi.spec.domain.firmware
    boot = firmware.kernel_boot if firmware is not None else None
    if boot is None:
        return
    domain.os.kernel = context.kernel.kernel or None
    domain.os.initrd = context.kernel.initrd or None
    domain.os.cmdline = boot.kernel_args or None


def configure_tables(context: Context, domain: Domain) -> None:
    """More ACPI tables, each a whole one with its header."""
    files = context.firmware
    if files.slic:
        domain.os.acpi_tables.append(AcpiTable(type="slic", path=files.slic))
    if files.msdm and context.libvirt_version >= _MSDM_SINCE:
        domain.os.acpi_tables.append(AcpiTable(type="msdm", path=files.msdm))
    elif files.msdm:
        _pass_on(domain, "-acpitable", f"file={_escaped(files.msdm)}")


def configure_ignition(context: Context, domain: Domain) -> None:
    if context.firmware.ignition:
        _pass_on(domain, "-fw_cfg", f"name={_IGNITION},file={_escaped(context.firmware.ignition)}")


def _pass_on(domain: Domain, *words: str) -> None:
    domain.arguments.extend(QemuArgument(value=word) for word in words)


def _escaped(path: str) -> str:
    """In QEMU's options a comma ends a value, and two are one."""
    return path.replace(",", ",,")


def configure_reboot(context: Context, domain: Domain) -> None:
    actions = {"Terminate": "destroy", "Reboot": "restart"}
    policy = context.vmi.spec.domain.reboot_policy
    if policy:
        if policy not in actions:
            raise InvalidVMIError("spec.domain.rebootPolicy", f"{policy!r} is neither Reboot nor Terminate")
        domain.on_reboot = actions[policy]
