"""Rules about machine type, firmware, kernel boot, features and launch security."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from virt_api.admission.causes import Cause, forbidden, invalid, not_supported, required
from virt_api.admission.defaults.machine import HYPERV_NEEDS, is_on
from virt_api.admission.rules.base import Check, image_path

ARCHITECTURES = ("amd64", "arm64", "s390x")


def architecture(check: Check) -> Iterator[Cause]:
    if check.spec.architecture not in ARCHITECTURES:
        yield invalid(
            f"{check.path}.architecture", f"{check.spec.architecture!r} is not one of {', '.join(ARCHITECTURES)}"
        )


def machine_type(check: Check) -> Iterator[Cause]:
    machine = check.spec.domain.machine
    allowed = check.config.emulated_machines.get(check.spec.architecture)
    if machine is None or not machine.type or allowed is None:
        return
    if not any(fnmatchcase(machine.type, pattern) for pattern in allowed):
        yield invalid(f"{check.domain}.machine.type", f"{machine.type!r} is not supported; use {' or '.join(allowed)}")


def bootloader(check: Check) -> Iterator[Cause]:
    loader = check.spec.domain.firmware.bootloader if check.spec.domain.firmware else None
    if loader is not None and loader.bios is not None and loader.efi is not None:
        yield invalid(f"{check.domain}.firmware.bootloader", "bios and efi cannot be given together")


def secure_boot(check: Check) -> Iterator[Cause]:
    domain = check.spec.domain
    loader = domain.firmware.bootloader if domain.firmware else None
    if loader is None or loader.efi is None or loader.efi.secure_boot is False:
        return
    if domain.launch_security is not None and domain.launch_security.tdx is not None:
        return
    smm = domain.features.smm if domain.features else None
    if smm is None or smm.enabled is False:
        yield invalid(check.domain, "EFI with secureBoot needs features.smm; turn secureBoot off or smm on")


def kernel_boot(check: Check) -> Iterator[Cause]:
    boot = check.spec.domain.firmware.kernel_boot if check.spec.domain.firmware else None
    if boot is None:
        return
    field = f"{check.domain}.firmware.kernelBoot"
    container = boot.container
    if container is None:
        if boot.kernel_args:
            yield invalid(f"{field}.kernelArgs", "needs a container with a kernel")
        return
    # Both sentences are compared by clients.
    if not container.image:
        yield required(f"{field}.container.image", f"{field}.container must be defined with an image")
    if not container.kernel_path and not container.initrd_path:
        words = "must be defined with at least one of the following: kernelPath, initrdPath"
        yield required(f"{field}.container", f"{field}.container {words}")
    for name, path in (("kernelPath", container.kernel_path), ("initrdPath", container.initrd_path)):
        if path:
            yield from image_path(f"{field}.container.{name}", path)


def acpi_tables(check: Check) -> Iterator[Cause]:
    acpi = check.spec.domain.firmware.acpi if check.spec.domain.firmware else None
    if acpi is None:
        return
    field = f"{check.path}.acpi"
    refs = (("slicNameRef", acpi.slic_name_ref), ("msdmNameRef", acpi.msdm_name_ref))
    if not any(name for _, name in refs):
        yield invalid(field, "at least one of slicNameRef and msdmNameRef is needed")
    volumes = {volume.name: volume for volume in check.spec.volumes}
    for key, name in refs:
        if not name:
            continue
        if name not in volumes:
            yield invalid(f"{field}.{key}", f"there is no volume {name!r}")
        elif volumes[name].secret is None:
            yield invalid(f"{field}.{key}", f"volume {name!r} must be a Secret")


def hyperv(check: Check) -> Iterator[Cause]:
    features = check.spec.domain.features
    if features is None or features.hyperv is None:
        return
    field = f"{check.domain}.features.hyperv"
    passthrough = features.hyperv_passthrough
    if passthrough is not None and passthrough.enabled is not False:
        yield invalid(field, "cannot be given together with hypervPassthrough")
    for name, needs in HYPERV_NEEDS:
        if is_on(features.hyperv, name) and not is_on(features.hyperv, needs):
            yield invalid(f"{field}.{name}", f"needs {needs}")
    if is_on(features.hyperv, "evmcs"):
        yield from _vmx(check)


def _vmx(check: Check) -> Iterator[Cause]:
    cpu = check.spec.domain.cpu
    found = {feature.name: feature.policy for feature in (cpu.features if cpu else [])}
    field = f"{check.domain}.cpu.features"
    if "vmx" not in found:
        yield required(field, "hyperv.evmcs needs the CPU feature vmx")
    elif found["vmx"] != "require":
        yield invalid(field, "hyperv.evmcs needs the CPU feature vmx with the policy require")


def launch_security(check: Check) -> Iterator[Cause]:
    security = check.spec.domain.launch_security
    if security is None or check.spec.architecture == "s390x":
        return
    field = f"{check.path}.launchSecurity"
    if check.spec.architecture != "amd64":
        yield invalid(f"{check.path}.architecture", "launchSecurity needs amd64 or s390x")
        return
    chosen = [name for name in ("sev", "snp", "tdx") if getattr(security, name) is not None]
    if len(chosen) != 1:
        yield forbidden(field, "exactly one of sev, snp and tdx is needed")
        return
    gate = "WorkloadEncryptionTDX" if chosen == ["tdx"] else "WorkloadEncryptionSEV"
    if not check.config.has(gate):
        yield invalid(field, f"needs the feature gate {gate}")
    yield from _encrypted_boot(check, field, chosen[0])


def _encrypted_boot(check: Check, field: str, kind: str) -> Iterator[Cause]:
    domain = check.spec.domain
    loader = domain.firmware.bootloader if domain.firmware else None
    efi = loader.efi if loader else None
    if efi is None:
        yield invalid(field, f"{kind} needs EFI")
    elif kind != "tdx" and efi.secure_boot is not False:
        yield invalid(field, f"{kind} cannot be used with secureBoot")
    if efi is not None and efi.persistent and kind != "sev":
        yield invalid(field, f"{kind} cannot be used with persistent EFI variables")
    smm = domain.features.smm if domain.features else None
    if kind == "tdx" and smm is not None and smm.enabled is not False:
        yield invalid(field, "tdx cannot be used with smm")
    sev = domain.launch_security.sev if domain.launch_security else None
    if sev is not None and sev.attestation is not None and check.spec.start_strategy != "Paused":
        yield invalid(field, "attestation needs the startStrategy Paused")
    if any(interface.boot_order is not None for interface in domain.devices.interfaces):
        yield invalid(field, f"{kind} cannot be used with a bootOrder of an interface")


def by_architecture(check: Check) -> Iterator[Cause]:
    """What an architecture does not have."""
    domain, devices = check.spec.domain, check.spec.domain.devices
    arch = check.spec.architecture
    videos = {
        "amd64": ("vga", "cirrus", "virtio", "ramfb", "bochs"),
        "arm64": ("virtio", "ramfb"),
        "s390x": ("virtio",),
    }
    if devices.video is not None and devices.video.type and devices.video.type not in videos.get(arch, ()):
        yield not_supported(f"{check.devices}.video.type", f"{devices.video.type!r} does not exist on {arch}")
    if devices.watchdog is not None:
        wrong = {"amd64": devices.watchdog.diag288, "s390x": devices.watchdog.i6300esb, "arm64": devices.watchdog}
        if wrong.get(arch) is not None:
            yield not_supported(f"{check.devices}.watchdog", f"this watchdog does not exist on {arch}")
    if arch != "arm64":
        return
    loader = domain.firmware.bootloader if domain.firmware else None
    if loader is not None and loader.bios is not None:
        yield not_supported(f"{check.domain}.firmware.bootloader.bios", "arm64 has no BIOS")
    if domain.cpu is not None and domain.cpu.model != "host-passthrough":
        yield not_supported(f"{check.domain}.cpu.model", "arm64 supports only host-passthrough")
    if devices.sound is not None:
        yield not_supported(f"{check.devices}.sound", "arm64 has no sound device")
    for i, disk in enumerate(devices.disks):
        for name, target in (("disk", disk.disk), ("lun", disk.lun), ("cdrom", disk.cdrom)):
            if target is not None and target.bus not in ("", "virtio", "scsi"):
                yield not_supported(
                    f"{check.devices}.disks[{i}].{name}.bus", "arm64 supports only virtio and scsi disks"
                )
