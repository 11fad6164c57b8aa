"""The small devices: randomness, memory balloon, pointer, watchdog, sound, TPM, panic, vsock."""

from __future__ import annotations

import shutil

from virt_core.apis import names
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
    reporting = context.vmi.metadata.annotations.get(_FREE_PAGE_REPORTING_OFF) != "true"
    domain.devices.memballoon = MemBalloon(
        model=context.virtio_model,
        free_page_reporting=reporting,
        stats_period=context.memballoon_stats_period_s or None,
    )


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


def configure_watchdog(context: Context, domain: Domain) -> None:
    spec = context.vmi.spec.domain.devices.watchdog
    if spec is None:
        return
    if spec.i6300esb is None:
        raise InvalidVMIError("spec.domain.devices.watchdog", "must be i6300esb on amd64")
    alias = f"ua-{spec.name}" if spec.name else None
    domain.devices.watchdogs.append(Watchdog(model="i6300esb", action=spec.i6300esb.action or "reset", alias=alias))


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
    domain.devices.tpms.append(Tpm(model="tpm-tis", backend_type="emulator", backend_version="2.0"))


def configure_panic(context: Context, domain: Domain) -> None:
    for spec in context.vmi.spec.domain.devices.panic_devices:
        domain.devices.panics.append(Panic(model=spec.model or "isa"))


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
    domain.devices.vsock = Vsock(model="virtio-non-transitional", cid_auto=False, cid=cid)
