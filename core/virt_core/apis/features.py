"""Switches of the machine: CPU and firmware features, Hyper-V enlightenments, clock and timers."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct, Uint32


class FeatureState(Struct):
    """A feature that is on or off."""

    enabled: bool | None = None  #: Whether it is on; true by default once the feature is named.


class FeatureAPIC(Struct):
    """The interrupt controller."""

    enabled: bool | None = None  #: Whether it is on; true by default.
    end_of_interrupt: bool = False  #: Whether end-of-interrupt notifications are on.


class FeatureKVM(Struct):
    """What the guest sees of KVM."""

    hidden: bool = False  #: Whether KVM hides from the guest.


class HyperVPassthrough(Struct):
    """All enlightenments that the node offers."""

    enabled: bool | None = None  #: Whether it is on; true by default.


class FeatureSpinlocks(Struct):
    """Retries before a spinning vCPU yields."""

    enabled: bool | None = None  #: Whether it is on; true by default.
    retries: Uint32 | None = field(default=None, name="spinlocks")  #: The number of retries; 4096 by default.


class SyNICTimer(Struct):
    """Timers of the synthetic interrupt controller."""

    enabled: bool | None = None  #: Whether it is on; true by default.
    direct: FeatureState | None = None  #: Direct mode.


class FeatureVendorID(Struct):
    """The hypervisor vendor that the guest sees."""

    enabled: bool | None = None  #: Whether it is on; true by default.
    vendor_id: str = field(default="", name="vendorid")  #: Up to twelve characters.


class TLBFlush(Struct):
    """Flushes of TLBs by hypercall."""

    enabled: bool | None = None  #: Whether it is on; true by default.
    direct: FeatureState | None = None  #: Direct mode.
    extended: FeatureState | None = None  #: Flushes of parts.


class FeatureHyperv(Struct):
    """Hyper-V enlightenments for Windows guests."""

    relaxed: FeatureState | None = None  #: Relaxed timers.
    vapic: FeatureState | None = None  #: Paravirtual APIC.
    spinlocks: FeatureSpinlocks | None = None  #: Retries of spin locks.
    vpindex: FeatureState | None = None  #: Virtual processor index.
    runtime: FeatureState | None = None  #: Time spent in the guest and the hypervisor.
    synic: FeatureState | None = None  #: Synthetic interrupt controller.
    synictimer: SyNICTimer | None = None  #: Synthetic timers.
    reset: FeatureState | None = None  #: Reset by hypercall.
    vendorid: FeatureVendorID | None = None  #: The hypervisor vendor.
    frequencies: FeatureState | None = None  #: TSC and APIC frequencies.
    reenlightenment: FeatureState | None = None  #: Notice of a changed TSC frequency.
    tlbflush: TLBFlush | None = None  #: TLB flushes by hypercall.
    ipi: FeatureState | None = None  #: Interrupts between processors by hypercall.
    evmcs: FeatureState | None = None  #: Enlightened VMCS.


class Features(Struct):
    """Features of the machine."""

    acpi: FeatureState | None = None  #: ACPI; on by default.
    apic: FeatureAPIC | None = None  #: The interrupt controller.
    smm: FeatureState | None = None  #: System management mode.
    pvspinlock: FeatureState | None = None  #: Paravirtual spin locks.
    kvm: FeatureKVM | None = None  #: What the guest sees of KVM.
    hyperv_passthrough: HyperVPassthrough | None = None  #: All enlightenments that the node offers.
    hyperv: FeatureHyperv | None = None  #: Hyper-V enlightenments.


class ClockOffsetUTC(Struct):
    """A clock in UTC."""

    offset_seconds: int | None = None  #: The offset at start.


class HPETTimer(Struct):
    """The high precision event timer."""

    tick_policy: str = ""  #: delay, catchup, merge or discard.
    enabled: bool | None = field(default=None, name="present")  #: Whether it is there; true by default.


class KVMTimer(Struct):
    """The KVM clock."""

    enabled: bool | None = field(default=None, name="present")  #: Whether it is there; true by default.


class PITTimer(Struct):
    """The programmable interval timer."""

    tick_policy: str = ""  #: delay, catchup or discard.
    enabled: bool | None = field(default=None, name="present")  #: Whether it is there; true by default.


class RTCTimer(Struct):
    """The real time clock."""

    tick_policy: str = ""  #: delay or catchup.
    enabled: bool | None = field(default=None, name="present")  #: Whether it is there; true by default.
    track: str = ""  #: guest or wall.


class HypervTimer(Struct):
    """The Hyper-V reference clock."""

    enabled: bool | None = field(default=None, name="present")  #: Whether it is there; true by default.


class Timer(Struct):
    """The timers of the machine."""

    hpet: HPETTimer | None = None  #: The high precision event timer.
    kvm: KVMTimer | None = None  #: The KVM clock.
    pit: PITTimer | None = None  #: The programmable interval timer.
    rtc: RTCTimer | None = None  #: The real time clock.
    hyperv: HypervTimer | None = None  #: The Hyper-V reference clock.


class Clock(Struct):
    """The guest's clock. At most one of utc, timezone."""

    utc: ClockOffsetUTC | None = None  #: Runs in UTC.
    timezone: str | None = None  #: Runs in a time zone, such as Europe/Berlin.
    timer: Timer | None = None  #: The timers.
