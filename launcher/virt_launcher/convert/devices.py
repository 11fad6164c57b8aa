"""The small devices: randomness, memory balloon, pointer, watchdog, sound, TPM, panic, vsock, and those of the node."""

from __future__ import annotations

import shutil

from virt_core.apis import names
from virt_core.apis.keptstate import keeps_tpm
from virt_launcher.convert.consoles import has_screen
from virt_launcher.convert.context import Context
from virt_launcher.domain.devices import Input, MemBalloon, Panic, Rng, Sound, Tpm, Vsock, Watchdog
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

_FREE_PAGE_REPORTING_OFF = names.ANNOTATION_FREE_PAGE_REPORTING_DISABLED
#: What a TPM is made of, by Debian package: one is the TPM, the other writes its first state.
_TPM_PROGRAMS = {"swtpm": "swtpm", "swtpm_setup": "swtpm-tools"}


def configure_rng(context: Context, domain: Domain) -> None:
    if context.vmi.spec.domain.devices.rng is not None:
        rng = Rng(model=context.virtio_model, backend_model="random", backend="/dev/urandom")
        domain.devices.rngs.append(rng)


def configure_memballoon(context: Context, domain: Domain) -> None:
    if context.vmi.spec.domain.devices.autoattach_mem_balloon is False:
        domain.devices.memballoon = MemBalloon(model="none")
        return
    reporting = context.free_page_reporting and not _is_high_performance(context)
    reporting = reporting and context.vmi.metadata.annotations.get(_FREE_PAGE_REPORTING_OFF) != "true"
    domain.devices.memballoon = MemBalloon(
        model=context.virtio_model,
        free_page_reporting=reporting,
        stats_period=context.memballoon_stats_period_s or None,
    )


def _is_high_performance(context: Context) -> bool:
    """A guest whose CPUs or memory are set apart for it is not slowed down so that the node gets pages back."""
    cpu, memory = context.cpu, context.vmi.spec.domain.memory
    own_cpus = cpu.dedicated_cpu_placement or cpu.isolate_emulator_thread or cpu.numa is not None
    return own_cpus or (memory is not None and memory.hugepages is not None)


def configure_inputs(context: Context, domain: Domain) -> None:
    for index, spec in enumerate(context.vmi.spec.domain.devices.inputs):
        path = f"spec.domain.devices.inputs[{index}]"
        if spec.type != "tablet":
            raise InvalidVMIError(f"{path}.type", f"{spec.type!r} is not supported; use tablet")
        if spec.bus not in ("", "usb", "virtio"):
            raise InvalidVMIError(f"{path}.bus", f"{spec.bus!r} is neither usb nor virtio")
        model = "virtio" if spec.bus == "virtio" else None
        alias = f"ua-{spec.name}" if spec.name else None
        domain.devices.inputs.append(Input(type="tablet", bus=spec.bus or "usb", model=model, alias=alias))
    if not has_screen(context):
        return
    for kind, bus in context.architecture.inputs:
        if all(device.type != kind for device in domain.devices.inputs):
            domain.devices.inputs.append(Input(type=kind, bus=bus))


def configure_watchdog(context: Context, domain: Domain) -> None:
    spec = context.vmi.spec.domain.devices.watchdog
    if spec is None:
        return
    model = context.architecture.watchdog
    chosen = {"i6300esb": spec.i6300esb, "diag288": spec.diag288}.get(model)
    if chosen is None:
        why = f"must be {model} on this architecture" if model else "this architecture has none"
        raise InvalidVMIError("spec.domain.devices.watchdog", why)
    alias = f"ua-{spec.name}" if spec.name else None
    domain.devices.watchdogs.append(Watchdog(model=model, action=chosen.action or "reset", alias=alias))


def configure_sound(context: Context, domain: Domain) -> None:
    spec = context.vmi.spec.domain.devices.sound
    if spec is None:
        return
    if spec.model not in ("", "ich9", "ac97"):
        raise InvalidVMIError("spec.domain.devices.sound.model", f"{spec.model!r} is neither ich9 nor ac97")
    alias = f"ua-{spec.name}" if spec.name else None
    domain.devices.sounds.append(Sound(model=spec.model or "ich9", alias=alias))


def configure_tpm(context: Context, domain: Domain) -> None:
    spec = context.vmi.spec.domain.devices.tpm
    if spec is None or spec.enabled is False:
        return
    for program, package in _TPM_PROGRAMS.items():
        if shutil.which(program, path="/usr/bin:/bin:/usr/local/bin") is None:
            why = f"there is no {program} where the launcher runs; Debian's package is {package}"
            raise InvalidVMIError("spec.domain.devices.tpm", why)
    tpm = Tpm(model="tpm-tis", backend_type="emulator", backend_version="2.0")
    if keeps_tpm(context.vmi.spec):
        tpm.model, tpm.persistent_state = "tpm-crb", True
    domain.devices.tpms.append(tpm)


def configure_panic(context: Context, domain: Domain) -> None:
    models = context.architecture.panics
    for index, spec in enumerate(context.vmi.spec.domain.devices.panic_devices):
        model = spec.model or next(iter(models), "")
        if model not in models:
            path = f"spec.domain.devices.panicDevices[{index}].model"
            raise InvalidVMIError(path, f"{model!r} is not one that this architecture has ({', '.join(models)})")
        domain.devices.panics.append(Panic(model=model))


def configure_vsock(context: Context, domain: Domain) -> None:
    """The address is the cluster's choice: it must stay when the machine moves, and nobody else may have it."""
    if not context.vmi.spec.domain.devices.autoattach_vsock:
        return
    cid = context.vmi.status.vsock_cid
    if not cid:
        raise InvalidVMIError("status.VSOCKCID", "virt-controller has given the machine no vsock address")
    if not context.vhost_vsock:
        path = "spec.domain.devices.autoattachVSOCK"
        raise InvalidVMIError(path, "the Pod has no /dev/vhost-vsock: the node's kernel lacks the module vhost_vsock")
    # Never the older kind: vsock came after it.
    model = context.architecture.virtio or "virtio-non-transitional"
    domain.devices.vsock = Vsock(model=model, cid_auto=False, cid=cid)


def configure_host_devices(context: Context, domain: Domain) -> None:
    """Imported only here: most machines have none."""
    spec = context.vmi.spec.domain.devices
    if spec.gpus or spec.host_devices:
        from virt_launcher.convert.hostdevs import host_devices

        domain.devices.hostdevs = host_devices(context)
    if any(nic.sriov is not None for nic in spec.interfaces):
        from virt_launcher.convert.sriov import cards

        domain.devices.hostdevs += cards(context)
