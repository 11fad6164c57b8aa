"""What a manifest may ask for and this launcher can not do yet. Refusing by name beats starting a different machine.

One row for each field: its path, and how to see that it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.convert.context import ARCHITECTURES, Context
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

#: libvirt that knows the PCI panic device.
_PVPANIC_SINCE = 9_001_000

_DEVICES = "spec.domain.devices"

_ROWS: tuple[tuple[str, Callable[[VirtualMachineInstance], object]], ...] = (
    ("spec.domain.cpu.dedicatedCpuPlacement", lambda vmi: _cpu(vmi, "dedicated_cpu_placement")),
    ("spec.domain.cpu.isolateEmulatorThread", lambda vmi: _cpu(vmi, "isolate_emulator_thread")),
    ("spec.domain.cpu.numa", lambda vmi: _cpu(vmi, "numa")),
    ("spec.domain.cpu.realtime", lambda vmi: _cpu(vmi, "realtime")),
    ("spec.domain.launchSecurity", lambda vmi: vmi.spec.domain.launch_security),
    ("spec.domain.firmware.acpi", lambda vmi: vmi.spec.domain.firmware and vmi.spec.domain.firmware.acpi),
    (f"{_DEVICES}.filesystems", lambda vmi: vmi.spec.domain.devices.filesystems),
    (f"{_DEVICES}.gpus", lambda vmi: vmi.spec.domain.devices.gpus),
    (f"{_DEVICES}.hostDevices", lambda vmi: vmi.spec.domain.devices.host_devices),
    (f"{_DEVICES}.downwardMetrics", lambda vmi: vmi.spec.domain.devices.downward_metrics),
    (f"{_DEVICES}.tpm.persistent", lambda vmi: vmi.spec.domain.devices.tpm and vmi.spec.domain.devices.tpm.persistent),
)


def refuse_unsupported(context: Context, domain: Domain) -> None:
    del domain
    vmi = context.vmi
    if vmi.spec.architecture not in ARCHITECTURES:
        raise InvalidVMIError("spec.architecture", f"{vmi.spec.architecture!r} can not run here; use amd64")
    for path, asked in _ROWS:
        if asked(vmi):
            raise InvalidVMIError(path, "is not supported yet")
    _refuse_disk_options(vmi)
    _refuse_hyperv_options(vmi)
    _refuse_panic_models(context)


def _cpu(vmi: VirtualMachineInstance, name: str) -> object:
    return vmi.spec.domain.cpu is not None and getattr(vmi.spec.domain.cpu, name)


def _refuse_disk_options(vmi: VirtualMachineInstance) -> None:
    for index, disk in enumerate(vmi.spec.domain.devices.disks):
        path = f"{_DEVICES}.disks[{index}]"
        if disk.changed_block_tracking:
            raise InvalidVMIError(f"{path}.changedBlockTracking", "is not supported yet")
        sizes = disk.block_size
        if sizes is not None and sizes.match_volume is not None and sizes.match_volume.enabled is not False:
            raise InvalidVMIError(f"{path}.blockSize.matchVolume", "is not supported yet; use blockSize.custom")
        if sizes is not None and sizes.custom is not None and sizes.custom.discard_granularity is not None:
            raise InvalidVMIError(f"{path}.blockSize.custom.discardGranularity", "is not supported yet")


def _refuse_hyperv_options(vmi: VirtualMachineInstance) -> None:
    features = vmi.spec.domain.features
    flush = features.hyperv.tlbflush if features is not None and features.hyperv is not None else None
    if flush is not None and (flush.direct is not None or flush.extended is not None):
        raise InvalidVMIError("spec.domain.features.hyperv.tlbflush", "direct and extended are not supported yet")


def _refuse_panic_models(context: Context) -> None:
    for index, device in enumerate(context.vmi.spec.domain.devices.panic_devices):
        if device.model == "pvpanic" and context.libvirt_version < _PVPANIC_SINCE:
            path = f"{_DEVICES}.panicDevices[{index}].model"
            raise InvalidVMIError(path, "pvpanic needs libvirt 9.1 or newer on the node; use isa")
