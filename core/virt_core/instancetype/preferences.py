"""A preference onto the spec of a VMI: fills in what the author left open, and never contradicts."""

from __future__ import annotations

import msgspec

from virt_core.apis.bindings import MASQUERADE, TABLE, chosen, removed
from virt_core.apis.devices import Devices, Disk, DiskTarget, Interface, PanicDevice, VideoDevice
from virt_core.apis.domain import BIOS, CPU, EFI, Bootloader, Firmware, Machine
from virt_core.apis.features import Clock, FeatureHyperv, Features
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.preference import (
    ClockPreferences,
    DevicePreferences,
    FeaturePreferences,
    FirmwarePreferences,
    VirtualMachinePreferenceSpec,
)
from virt_core.apis.vmi import VirtualMachineInstanceSpec

#: devices' field ← preferences' field, where nothing but None counts as open
_AUTOATTACH = {
    "autoattach_graphics_device": "preferred_autoattach_graphics_device",
    "autoattach_mem_balloon": "preferred_autoattach_mem_balloon",
    "autoattach_pod_interface": "preferred_autoattach_pod_interface",
    "autoattach_serial_console": "preferred_autoattach_serial_console",
    "autoattach_input_device": "preferred_autoattach_input_device",
}
_SWITCHES = _AUTOATTACH | {
    "use_virtio_transitional": "preferred_use_virtio_transitional",
    "block_multi_queue": "preferred_block_multi_queue",
    "network_interface_multiqueue": "preferred_network_interface_multi_queue",
    "rng": "preferred_rng",
    "tpm": "preferred_tpm",
}
_FEATURES = {
    "acpi": "preferred_acpi",
    "apic": "preferred_apic",
    "kvm": "preferred_kvm",
    "pvspinlock": "preferred_pvspinlock",
    "smm": "preferred_smm",
}


def apply_preference(
    spec: VirtualMachineInstanceSpec, metadata: ObjectMeta, preference: VirtualMachinePreferenceSpec
) -> None:
    """Changes spec and annotations in place. The preference becomes part of the spec: pass a copy."""
    apply_cpu_features(spec, preference)
    if preference.devices is not None:
        apply_devices(spec, preference.devices)
    if preference.features is not None:
        _features(spec, preference.features)
    if preference.firmware is not None:
        _firmware(spec, preference.firmware)
    if preference.clock is not None:
        _clock(spec, preference.clock)
    apply_machine(spec, preference)
    if preference.preferred_launch_security is not None and spec.domain.launch_security is None:
        spec.domain.launch_security = preference.preferred_launch_security
    spec.subdomain = spec.subdomain or preference.preferred_subdomain or ""
    if spec.termination_grace_period_seconds is None:
        spec.termination_grace_period_seconds = preference.preferred_termination_grace_period_seconds
    if preference.annotations:
        metadata.annotations = {**preference.annotations, **metadata.annotations}


def apply_cpu_features(spec: VirtualMachineInstanceSpec, preference: VirtualMachinePreferenceSpec) -> None:
    """Those that the author did not mention."""
    wanted = preference.cpu.preferred_cpu_features if preference.cpu is not None else []
    if not wanted:
        return
    cpu = spec.domain.cpu = spec.domain.cpu or CPU()
    named = {feature.name for feature in cpu.features}
    cpu.features = [*cpu.features, *(feature for feature in wanted if feature.name not in named)]


def apply_machine(spec: VirtualMachineInstanceSpec, preference: VirtualMachinePreferenceSpec) -> None:
    """Architecture and machine type: also what the webhook writes down in the VM itself."""
    spec.architecture = spec.architecture or preference.preferred_architecture or ""
    wanted = preference.machine.preferred_machine_type if preference.machine is not None else ""
    if wanted:
        machine = spec.domain.machine = spec.domain.machine or Machine()
        machine.type = machine.type or wanted


def apply_autoattach(devices: Devices, wanted: DevicePreferences) -> None:
    """Decides what else is added to the machine, so it comes before that."""
    _fill(devices, wanted, _AUTOATTACH)


def apply_devices(spec: VirtualMachineInstanceSpec, wanted: DevicePreferences) -> None:
    """Also for devices that were added after the preference was applied as a whole, such as a default NIC."""
    devices = spec.domain.devices
    _fill(devices, wanted, _SWITCHES)
    if wanted.preferred_disable_hotplug is not None:
        devices.disable_hotplug = wanted.preferred_disable_hotplug
    if devices.sound is not None:
        devices.sound.model = devices.sound.model or wanted.preferred_sound_model
    if wanted.preferred_video_type and (devices.video is None or not devices.video.type):
        devices.video = VideoDevice(type=wanted.preferred_video_type)
    for disk in devices.disks:
        _disk(disk, wanted)
    on_pod = {network.name for network in spec.networks if network.pod is not None}
    for interface in devices.interfaces:
        _interface(interface, wanted, on_pod_network=interface.name in on_pod)
    for device in devices.inputs:
        device.bus = device.bus or wanted.preferred_input_bus
        device.type = device.type or wanted.preferred_input_type
    _gpus_and_panic(devices, wanted)


def _fill(target: msgspec.Struct, source: msgspec.Struct, fields: dict[str, str]) -> None:
    for mine, preferred in fields.items():
        if getattr(target, mine) is None:
            setattr(target, mine, getattr(source, preferred))


def _disk(disk: Disk, wanted: DevicePreferences) -> None:
    if disk.disk is None and disk.lun is None and disk.cdrom is None:
        disk.disk = DiskTarget()
    if disk.lun is not None:
        disk.lun.bus = disk.lun.bus or wanted.preferred_lun_bus
    if disk.cdrom is not None:
        disk.cdrom.bus = disk.cdrom.bus or wanted.preferred_cdrom_bus
    if disk.disk is None:
        return
    disk.disk.bus = disk.disk.bus or wanted.preferred_disk_bus
    disk.block_size = disk.block_size or wanted.preferred_disk_block_size
    disk.cache = disk.cache or wanted.preferred_disk_cache
    disk.io = disk.io or wanted.preferred_disk_io
    # Only virtio disks can have a thread of their own.
    if disk.dedicated_io_thread is None and disk.disk.bus == "virtio":
        disk.dedicated_io_thread = wanted.preferred_disk_dedicated_io_thread


def _interface(interface: Interface, wanted: DevicePreferences, *, on_pod_network: bool) -> None:
    interface.model = interface.model or wanted.preferred_interface_model
    unbound = not chosen(interface) and not removed(interface)
    fits = on_pod_network or not TABLE[MASQUERADE].pod_network_only
    if wanted.preferred_interface_masquerade is not None and unbound and fits:
        interface.masquerade = wanted.preferred_interface_masquerade


def _gpus_and_panic(devices: Devices, wanted: DevicePreferences) -> None:
    for gpu in devices.gpus:
        gpu.virtual_gpu_options = gpu.virtual_gpu_options or wanted.preferred_virtual_gpu_options
    model = wanted.preferred_panic_device_model
    if model is None:
        return
    if not devices.panic_devices:
        devices.panic_devices = [PanicDevice()]
    for device in devices.panic_devices:
        device.model = device.model or model


def _features(spec: VirtualMachineInstanceSpec, wanted: FeaturePreferences) -> None:
    features = spec.domain.features = spec.domain.features or Features()
    _fill(features, wanted, _FEATURES)
    if wanted.preferred_hyperv is not None:
        features.hyperv = features.hyperv or FeatureHyperv()
        _fill(features.hyperv, wanted.preferred_hyperv, {name: name for name in FeatureHyperv.__struct_fields__})


def _firmware(spec: VirtualMachineInstanceSpec, wanted: FirmwarePreferences) -> None:
    firmware = spec.domain.firmware = spec.domain.firmware or Firmware()
    loader = firmware.bootloader = firmware.bootloader or Bootloader()
    if wanted.preferred_use_bios and loader.bios is None and loader.efi is None:
        loader.bios = BIOS()
    if loader.bios is not None and loader.bios.use_serial is None:
        loader.bios.use_serial = wanted.preferred_use_bios_serial
    if loader.bios is None and loader.efi is None and wanted.preferred_efi is not None:
        loader.efi = wanted.preferred_efi
        return
    if wanted.preferred_use_efi and loader.bios is None and loader.efi is None:
        loader.efi = EFI()
    if loader.efi is not None and loader.efi.secure_boot is None:
        loader.efi.secure_boot = wanted.preferred_use_secure_boot


def _clock(spec: VirtualMachineInstanceSpec, wanted: ClockPreferences) -> None:
    clock = spec.domain.clock = spec.domain.clock or Clock()
    offset = wanted.preferred_clock_offset
    if offset is not None and clock.utc is None and clock.timezone is None:
        clock.utc, clock.timezone = offset.utc, offset.timezone
    clock.timer = clock.timer or wanted.preferred_timer
