"""Switches of the machine: ACPI, interrupt controller, Hyper-V enlightenments, clock and timers."""

from __future__ import annotations

from typing import Any

from virt_core.apis.features import Clock as ClockSpec
from virt_core.apis.features import FeatureHyperv
from virt_launcher.convert.context import Context, enabled
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Clock, Features, HyperV, Timer

#: Enlightenments that are only on or off, by their name in the API and in the domain.
_SWITCHES = {
    "relaxed": "relaxed",
    "vapic": "vapic",
    "vpindex": "vpindex",
    "runtime": "runtime",
    "synic": "synic",
    "reset": "reset",
    "frequencies": "frequencies",
    "reenlightenment": "reenlightenment",
    "tlbflush": "tlbflush",
    "ipi": "ipi",
    "evmcs": "evmcs",
}
_SPINLOCK_RETRIES = 4096


def configure_features(context: Context, domain: Domain) -> None:
    spec = context.vmi.spec.domain.features
    architecture = context.architecture
    features = Features(acpi=architecture.acpi, vmport=False if architecture.pc else None)
    domain.features = features
    if spec is None:
        return
    features.acpi = architecture.acpi and (spec.acpi is None or enabled(spec.acpi))
    if enabled(spec.apic) and spec.apic is not None:
        features.apic = True
        features.apic_eoi = True if spec.apic.end_of_interrupt else None
    features.smm = _switch(spec.smm)
    features.pvspinlock = _switch(spec.pvspinlock)
    features.kvm_hidden = spec.kvm.hidden if spec.kvm is not None else None
    if spec.hyperv is not None:
        features.hyperv = _hyperv(spec.hyperv)
    elif enabled(spec.hyperv_passthrough):
        features.hyperv = HyperV(mode="passthrough")


def _hyperv(spec: FeatureHyperv) -> HyperV:
    result = HyperV(mode="custom")
    for ours, theirs in _SWITCHES.items():
        setattr(result, theirs, _switch(getattr(spec, ours)))
    result.spinlocks = _switch(spec.spinlocks)
    if result.spinlocks and spec.spinlocks is not None:
        result.spinlocks_retries = spec.spinlocks.retries or _SPINLOCK_RETRIES
    result.stimer = _switch(spec.synictimer)
    if result.stimer and spec.synictimer is not None:
        result.stimer_direct = _switch(spec.synictimer.direct)
    if result.tlbflush and spec.tlbflush is not None:
        # Off is their default, and an older libvirt does not know them.
        result.tlbflush_direct = enabled(spec.tlbflush.direct) or None
        result.tlbflush_extended = enabled(spec.tlbflush.extended) or None
    result.vendor_id = _switch(spec.vendorid)
    if result.vendor_id and spec.vendorid is not None:
        result.vendor_id_value = spec.vendorid.vendor_id
    return result


def _switch(state: Any) -> bool | None:
    """Absent stays absent; named without a value is on."""
    return None if state is None else enabled(state)


def configure_clock(context: Context, domain: Domain) -> None:
    spec, counter = context.vmi.spec.domain.clock, _counter(context)
    if spec is None and not counter:
        return
    clock = domain.clock = Clock(offset="utc", timers=[*(_timers(spec) if spec is not None else ()), *counter])
    if spec is None:
        return
    if spec.utc is not None and spec.utc.offset_seconds is not None:
        # As libvirt reads `utc` with a number: the guest may move its clock on from there.
        clock.offset, clock.adjustment, clock.basis = "variable", str(spec.utc.offset_seconds), "utc"
    elif spec.utc is not None:
        clock.adjustment = "reset"
    elif spec.timezone:
        clock.offset, clock.timezone = "timezone", spec.timezone


def _counter(context: Context) -> list[Timer]:
    """What virt-controller found that all nodes can give a guest that relies on it."""
    hints = context.vmi.status.topology_hints
    hz = hints.tsc_frequency if hints is not None else None
    return [Timer(name="tsc", frequency=hz)] if hz and context.architecture.pc else []


def _timers(spec: ClockSpec) -> list[Timer]:
    timer = spec.timer
    if timer is None:
        return []
    named = (
        ("rtc", timer.rtc),
        ("pit", timer.pit),
        ("kvmclock", timer.kvm),
        ("hpet", timer.hpet),
        ("hypervclock", timer.hyperv),
    )
    return [
        Timer(
            name=name,
            present=enabled(value),
            tick_policy=getattr(value, "tick_policy", "") or None,
            track=getattr(value, "track", "") or None,
        )
        for name, value in named
        if value is not None
    ]
