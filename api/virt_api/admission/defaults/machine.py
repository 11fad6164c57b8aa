"""Defaults of the machine as a whole: architecture, firmware, features, probes, CPU model."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

from virt_core.apis.domain import CPU, EFI, Bootloader, CPUFeature, Firmware, Machine
from virt_core.apis.features import FeatureHyperv, Features, FeatureState
from virt_core.apis.vmi import VirtualMachineInstanceSpec as Spec
from virt_core.kube.configvalues import ClusterConfig

_SPINLOCK_RETRIES = 4096
#: feature → the feature that it needs
HYPERV_NEEDS = (
    ("evmcs", "vapic"),
    ("ipi", "vpindex"),
    ("tlbflush", "vpindex"),
    ("synictimer", "synic"),
    ("synic", "vpindex"),
)


def architecture(spec: Spec, config: ClusterConfig) -> None:
    spec.architecture = spec.architecture or config.default_architecture


def machine_type(spec: Spec, config: ClusterConfig) -> None:
    machine = spec.domain.machine = spec.domain.machine or Machine()
    machine.type = machine.type or config.machine_types.get(spec.architecture, "")


def eviction_strategy(spec: Spec, config: ClusterConfig) -> None:
    if spec.eviction_strategy is None:
        spec.eviction_strategy = config.eviction_strategy


def no_acpi_on_s390x(spec: Spec, _: ClusterConfig) -> None:
    if spec.architecture == "s390x":
        features = spec.domain.features = spec.domain.features or Features()
        features.acpi = FeatureState(enabled=False)


def firmware_uuid(spec: Spec, _: ClusterConfig) -> None:
    firmware = spec.domain.firmware = spec.domain.firmware or Firmware()
    firmware.uuid = firmware.uuid or str(uuid.uuid4())


def feature_states(spec: Spec, _: ClusterConfig) -> None:
    """A feature that is named is on, unless it says otherwise. ACPI is on without being named."""
    features = spec.domain.features = spec.domain.features or Features()
    features.acpi = features.acpi or FeatureState()
    for state in _switches(features):
        if state.enabled is None:
            state.enabled = True
    spinlocks = features.hyperv.spinlocks if features.hyperv else None
    if spinlocks is not None and spinlocks.retries is None:
        spinlocks.retries = _SPINLOCK_RETRIES
    for disk in spec.domain.devices.disks:
        match = disk.block_size.match_volume if disk.block_size else None
        if match is not None and match.enabled is None:
            match.enabled = True
    for gpu in spec.domain.devices.gpus:
        display = gpu.virtual_gpu_options.display if gpu.virtual_gpu_options else None
        if display is not None and display.ram_fb is not None and display.ram_fb.enabled is None:
            display.ram_fb.enabled = True


def _switches(node: msgspec.Struct) -> Iterator[Any]:
    """Every struct below that has an `enabled` field, found by its shape rather than by name."""
    for name in node.__struct_fields__:
        child = getattr(node, name)
        if isinstance(child, msgspec.Struct):
            if "enabled" in child.__struct_fields__:
                yield child
            yield from _switches(child)


def timers(spec: Spec, _: ClusterConfig) -> None:
    clock = spec.domain.clock
    if clock is not None and clock.timer is not None:
        for timer in _switches(clock.timer):
            if timer.enabled is None:
                timer.enabled = True


def probes(spec: Spec, _: ClusterConfig) -> None:
    for probe in (spec.liveness_probe, spec.readiness_probe):
        if probe is not None:
            probe.timeout_seconds = probe.timeout_seconds if probe.timeout_seconds >= 1 else 1
            probe.period_seconds = probe.period_seconds if probe.period_seconds >= 1 else 10
            probe.success_threshold = probe.success_threshold if probe.success_threshold >= 1 else 1
            probe.failure_threshold = probe.failure_threshold if probe.failure_threshold >= 1 else 3


def hyperv_dependencies(spec: Spec, _: ClusterConfig) -> None:
    """Some enlightenments need others; those that nobody mentioned are turned on with them."""
    hyperv = spec.domain.features.hyperv if spec.domain.features else None
    if hyperv is None:
        return
    for name, needs in HYPERV_NEEDS:
        if is_on(hyperv, name) and getattr(hyperv, needs) is None:
            setattr(hyperv, needs, FeatureState(enabled=True))
    if is_on(hyperv, "evmcs"):
        _require_vmx(spec)


def is_on(hyperv: FeatureHyperv, name: str) -> bool:
    state = getattr(hyperv, name)
    return state is not None and state.enabled is not False


def _require_vmx(spec: Spec) -> None:
    cpu = spec.domain.cpu = spec.domain.cpu or CPU()
    for feature in cpu.features:
        if feature.name == "vmx":
            feature.policy = "require"
            return
    cpu.features = [*cpu.features, CPUFeature(name="vmx", policy="require")]


def arm64_boot(spec: Spec, _: ClusterConfig) -> None:
    """arm64 guests start by UEFI and run on the host's own CPU model."""
    if spec.architecture != "arm64":
        return
    cpu = spec.domain.cpu = spec.domain.cpu or CPU()
    cpu.model = cpu.model or "host-passthrough"
    firmware = spec.domain.firmware = spec.domain.firmware or Firmware()
    if firmware.bootloader is None:
        firmware.bootloader = Bootloader(efi=EFI(secure_boot=False))
    elif firmware.bootloader.efi is not None and firmware.bootloader.efi.secure_boot is None:
        firmware.bootloader.efi.secure_boot = False


def cpu_model(spec: Spec, config: ClusterConfig) -> None:
    cpu = spec.domain.cpu = spec.domain.cpu or CPU()
    cpu.model = cpu.model or config.cpu_model
