"""What runs first: the machine type, BIOS or UEFI, a kernel without boot loader, and what a reboot means."""

from __future__ import annotations

import os

from virt_core.apis import launchsecurity, names
from virt_core.apis.keptstate import keeps_variables
from virt_core.runtime.record import record
from virt_launcher.convert.context import Context
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import AcpiTable, FirmwareFeature, QemuArgument
from virt_launcher.errors import InvalidVMIError

_BOOT_MENU_MS = 10_000
#: libvirt that knows of tables besides SLIC.
_MSDM_SINCE = 11_002_000
#: Where Ignition looks.
_IGNITION = "opt/com.coreos/config"


def is_there(path: str) -> bool:
    return os.path.exists(path)


@record(frozen=True, slots=True)
class Ovmf:
    """A pair of UEFI files as one distribution ships it."""

    code: str
    variables: str

    @property
    def present(self) -> bool:
        return is_there(self.code) and is_there(self.variables)


_DEBIAN_ARM = "/usr/share/AAVMF/AAVMF_{}.fd"
_EDK_ARM = "/usr/share/edk2/aarch64/{}-pflash.raw"
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
#: Debian's package, files with secure boot, files without.
_FIRMWARE = {
    "x86_64": ("ovmf", _SECURE, _PLAIN),
    "aarch64": (
        "qemu-efi-aarch64",
        (Ovmf(_DEBIAN_ARM.format("CODE.ms"), _DEBIAN_ARM.format("VARS.ms")),),
        (
            Ovmf(_DEBIAN_ARM.format("CODE"), _DEBIAN_ARM.format("VARS")),
            Ovmf(_EDK_ARM.format("QEMU_EFI"), _EDK_ARM.format("vars-template")),
        ),
    ),
}


#: For memory that the node cannot read. Without variables where the firmware is one file that is measured as a whole.
_PROTECTED = {
    launchsecurity.SNP: ("/usr/share/edk2/ovmf/OVMF.amdsev.fd", "/usr/share/ovmf/OVMF.amdsev.fd"),
    launchsecurity.TDX: ("/usr/share/edk2/ovmf/OVMF.inteltdx.fd", "/usr/share/ovmf/OVMF.inteltdx.fd"),
}
_TDX_SECURE = ("/usr/share/edk2/ovmf/OVMF.inteltdx.secboot.fd", "/usr/share/ovmf/OVMF.inteltdx.ms.fd")
_SEV = (Ovmf("/usr/share/edk2/ovmf/OVMF_CODE.cc.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"), *_PLAIN)


def configure_os(context: Context, domain: Domain) -> None:
    machine = context.vmi.spec.domain.machine
    domain.os.type = "hvm"
    domain.os.arch = context.architecture.name
    domain.os.machine = machine.type if machine is not None and machine.type else context.architecture.machine
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
    path, protection = "spec.domain.firmware.bootloader.efi", launchsecurity.protection(context.vmi.spec)
    if protection in _PROTECTED:
        _configure_rom(domain, protection, secure)
        return
    domain.os.nvram = _variables(context)
    if context.libvirt_chooses_firmware:
        domain.os.firmware = "efi"
        features = ("secure-boot", "enrolled-keys")
        domain.os.firmware_features = [FirmwareFeature(enabled=secure, name=name) for name in features]
        return
    if context.architecture.name not in _FIRMWARE:
        raise InvalidVMIError(path, f"there is no UEFI for {context.vmi.spec.architecture}")
    package, with_keys, plain = _FIRMWARE[context.architecture.name]
    candidates = _SEV if protection else with_keys if secure else plain
    found = next((pair for pair in candidates if pair.present), None)
    if found is None:
        kind = "UEFI with secure boot" if secure else "UEFI"
        looked = ", ".join(pair.code for pair in candidates)
        why = (
            f"there is no {kind} firmware where the launcher runs (looked for {looked}); Debian's package is {package}"
        )
        raise InvalidVMIError(path, why)
    domain.os.loader, domain.os.loader_type = found.code, "pflash"
    # libvirt's word for variables that only SMM writes, which is a PC's.
    domain.os.loader_readonly, domain.os.loader_secure = True, secure and context.architecture.pc
    domain.os.nvram_template = found.variables


def _configure_rom(domain: Domain, kind: str, secure: bool) -> None:
    candidates = _TDX_SECURE if secure and kind == launchsecurity.TDX else _PROTECTED[kind]
    found = next((path for path in candidates if is_there(path)), None)
    if found is None:
        looked = ", ".join(candidates)
        why = f"there is no UEFI firmware for {kind} where the launcher runs (looked for {looked})"
        raise InvalidVMIError("spec.domain.launchSecurity", why)
    domain.os.loader, domain.os.loader_type, domain.os.loader_readonly = found, "rom", True


def _variables(context: Context) -> str:
    """Where the firmware's variables are: they end with the Pod, or are kept in the machine's claim."""
    if not keeps_variables(context.vmi.spec):
        return f"{context.machine_dir}/efi-variables.fd"
    return f"{context.kept_state}/{names.KEPT_NVRAM}/{context.vmi.metadata.name}_VARS.fd"


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
