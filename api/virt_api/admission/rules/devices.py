"""Rules about the other devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from virt_api.admission.causes import Cause, duplicate, invalid, not_found, one_of, required
from virt_api.admission.rules.base import Check, is_dns_label, is_dns_subdomain
from virt_core.apis import names
from virt_core.apis.devices import GPU, HostDevice

IO_POLICIES = ("shared", "auto", names.IO_THREADS_POOL)
PANIC_MODELS = ("hyperv", "isa", "pvpanic")
REBOOT_POLICIES = ("Reboot", "Terminate")


def inputs(check: Check) -> Iterator[Cause]:
    for i, device in enumerate(check.spec.domain.devices.inputs):
        field = f"{check.devices}.inputs[{i}]"
        if device.bus not in ("", "virtio", "usb"):
            yield invalid(f"{field}.bus", one_of(device.bus, ("usb", "virtio")))
        if device.type != "tablet":
            yield invalid(f"{field}.type", one_of(device.type, ("tablet",)))


def io_threads(check: Check) -> Iterator[Cause]:
    policy, threads = check.spec.domain.io_threads_policy, check.spec.domain.io_threads
    if policy is not None and policy not in IO_POLICIES:
        yield invalid(f"{check.domain}.ioThreadsPolicy", one_of(policy, IO_POLICIES))
    count = threads.supplemental_pool_thread_count if threads else None
    if policy == names.IO_THREADS_POOL and not count:
        yield invalid(f"{check.domain}.ioThreads", "supplementalPool needs a supplementalPoolThreadCount of 1 or more")


def resource_claims(check: Check) -> Iterator[Cause]:
    seen: set[str] = set()
    for i, claim in enumerate(check.spec.resource_claims):
        field = f"{check.path}.resourceClaims[{i}]"
        if not claim.name:
            yield required(f"{field}.name", "must be given")
        elif claim.name in seen:
            yield duplicate(f"{field}.name", f"two claims are called {claim.name!r}")
        elif not is_dns_label(claim.name):
            yield invalid(f"{field}.name", f"{claim.name!r} must be a DNS label")
        seen.add(claim.name)
        given = [name for name in (claim.resource_claim_name, claim.resource_claim_template_name) if name]
        if len(given) != 1:
            yield invalid(field, "exactly one of resourceClaimName and resourceClaimTemplateName is needed")
        elif not is_dns_subdomain(given[0]):
            yield invalid(field, f"{given[0]!r} is not a valid object name")


def gpus(check: Check) -> Iterator[Cause]:
    devices = check.spec.domain.devices.gpus
    yield from _host_devices(check, "gpus", devices, "GPUsWithDRA")
    if len({device.claim_name is not None for device in devices}) > 1:
        yield invalid(f"{check.devices}.gpus", "GPUs with claimName and GPUs with deviceName cannot be given together")
    displays = [
        gpu.virtual_gpu_options.display
        for gpu in devices
        if gpu.virtual_gpu_options and gpu.virtual_gpu_options.display
    ]
    shown = [d for d in displays if d.enabled is not False and (d.ram_fb is None or d.ram_fb.enabled is not False)]
    if len(shown) > 1:
        yield invalid(f"{check.path}.GPUs", "only one virtual GPU can have a display with a frame buffer")


def host_devices(check: Check) -> Iterator[Cause]:
    devices = check.spec.domain.devices.host_devices
    if devices and not check.config.has("HostDevices"):
        yield invalid(f"{check.path}.HostDevices", "needs the feature gate HostDevices")
    yield from _host_devices(check, "hostDevices", devices, "HostDevicesWithDRA")


def _host_devices(check: Check, kind: str, devices: Sequence[GPU | HostDevice], gate: str) -> Iterator[Cause]:
    claims = {claim.name for claim in check.spec.resource_claims}
    pairs: set[tuple[str | None, str | None]] = set()
    for i, device in enumerate(devices):
        field = f"{check.devices}.{kind}[{i}]"
        by_claim = device.claim_name is not None or device.request_name is not None
        if by_claim and device.device_name:
            yield invalid(field, "deviceName and claimName cannot be given together")
        elif not by_claim and not device.device_name:
            yield required(field, "deviceName, or claimName with requestName, is needed")
        if not by_claim:
            continue
        if not check.config.has(gate):
            yield invalid(field, f"needs the feature gate {gate}")
        if not device.claim_name or not device.request_name:
            yield required(field, "claimName and requestName must be given together")
        elif device.claim_name not in claims:
            yield not_found(
                f"{field}.claimName", f"there is no claim {device.claim_name!r} in {check.path}.resourceClaims"
            )
        if (device.claim_name, device.request_name) in pairs:
            yield duplicate(field, "two devices use the same request of a claim")
        pairs.add((device.claim_name, device.request_name))


def sound(check: Check) -> Iterator[Cause]:
    device = check.spec.domain.devices.sound
    if device is None:
        return
    if device.model not in ("", "ich9", "ac97"):
        yield invalid(f"{check.path}.Sound", one_of(device.model, ("ich9", "ac97")))
    if not device.name:
        yield invalid(f"{check.path}.Sound", "a sound device needs a name")


def video(check: Check) -> Iterator[Cause]:
    devices = check.spec.domain.devices
    if devices.video is not None and devices.autoattach_graphics_device is False:
        yield invalid(f"{check.path}.video", "cannot be given when autoattachGraphicsDevice is false")


def panic_devices(check: Check) -> Iterator[Cause]:
    for i, device in enumerate(check.spec.domain.devices.panic_devices):
        field = f"{check.devices}.panicDevices[{i}]"
        if check.spec.architecture == "s390x":
            yield invalid(f"{check.devices}.panicDevices", "s390x has no panic device")
        if device.model is not None and device.model not in PANIC_MODELS:
            yield invalid(f"{field}.model", one_of(device.model, PANIC_MODELS))


def vsock(check: Check) -> Iterator[Cause]:
    if check.spec.domain.devices.autoattach_vsock and not check.config.has("VSOCK"):
        yield invalid(f"{check.devices}.autoattachVSOCK", "needs the feature gate VSOCK")


def reboot_policy(check: Check) -> Iterator[Cause]:
    policy = check.spec.domain.reboot_policy
    if policy is None:
        return
    if not check.config.has("RebootPolicy"):
        yield invalid(f"{check.domain}.rebootPolicy", "needs the feature gate RebootPolicy")
    elif policy not in REBOOT_POLICIES:
        yield invalid(f"{check.domain}.rebootPolicy", one_of(policy, REBOOT_POLICIES))
