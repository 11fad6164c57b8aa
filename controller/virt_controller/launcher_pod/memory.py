"""The memory that a VM needs beside its guest's own.

Measured on Debian 12 (libvirt 9.0, QEMU 7.2, PSS, a guest of 128 Mi that has booted), each rounded up by about a third,
since what is booked too low ends in the OOM killer and what is booked too high only costs density:

| part                                   | measured  | booked           |
|----------------------------------------|-----------|------------------|
| launcher and libvirt daemon            | 50-60 Mi  | 70 Mi            |
| QEMU without guest memory and caches   | 30 Mi     | 40 Mi            |
| one vCPU: stack, monitor, virtio rings | 2-4 Mi    | 8 Mi             |
| graphics: frame buffer and VNC server  | 10 Mi     | 16 Mi            |
| DHCP server of the Pod                 | 0.5 Mi    | in the launcher's|
| page tables of the guest's memory      | size/512  | size/512         |
| translated code, emulation only        | 56 Mi     | 96 Mi            |
| kernel and RAM disk that QEMU loads    | 20 Mi     | 32 Mi            |
| a probe that asks the guest by agent   | 11 Mi     | 16 Mi            |
| arm64: two flash chips of firmware     | not here  | 128 Mi, likewise |
| devices of the node: what VFIO maps    | no such   | 1 Gi, as KubeVirt|
|                                        | device    |                  |
| memory that the node cannot read (SEV)  | no such   | 256 Mi, as       |
|                                        | processor | KubeVirt         |
| figures of the host for the guest      | 0.3 Mi    | 1 Mi             |
| passt, and 75,000 sockets of all ports | 20 Mi and | 250 Mi, as       |
|                                        | no room   | KubeVirt         |

Translated code grows with what the guest runs (QEMU's own ceiling is 1 GiB), so emulated guests have the widest margin.
"""

from __future__ import annotations

import math
from decimal import Decimal

from virt_core.apis import bindingplugins
from virt_core.apis.bindingplugins import NO_PLUGINS, Configured
from virt_core.apis.facts import has_metrics
from virt_core.apis.guestprobes import by_agent
from virt_core.apis.launchsecurity import SEV_FAMILY, protection
from virt_core.apis.nodedevices import has_node_devices
from virt_core.apis.owncpus import is_dedicated, vcpus
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.vmi import VirtualMachineInstance

MIB = 1 << 20

LAUNCHER = 70 * MIB
QEMU = 40 * MIB
PER_VCPU = 8 * MIB
GRAPHICS = 16 * MIB
TRANSLATED_CODE = 96 * MIB
KERNEL_BOOT = 32 * MIB
AGENT_PROBE = 16 * MIB
ARM_FIRMWARE = 128 * MIB
NODE_DEVICES = 1024 * MIB
METRICS = MIB
SEV = 256 * MIB
PAGE_TABLE_RATIO = 512

DEFAULT_GUEST = 128 * MIB


def guest_memory(vmi: VirtualMachineInstance) -> int:
    """Bytes that the guest sees: what it says itself, else what the resources ask for."""
    domain = vmi.spec.domain
    if domain.memory is not None and domain.memory.guest is not None:
        return parse_bytes(domain.memory.guest)
    resources = domain.resources
    for amounts in (resources.requests, resources.limits):
        if "memory" in amounts:
            return parse_bytes(amounts["memory"])
    return DEFAULT_GUEST


def overhead(vmi: VirtualMachineInstance, *, emulated: bool, ratio: str = "", plugins: Configured = NO_PLUGINS) -> int:
    """Bytes to book beside the guest's memory, in whole MiB. The cluster may multiply them by a ratio, but for what
    its NICs take: that does not grow with the machine."""
    total = LAUNCHER + QEMU + PER_VCPU * vcpus(vmi) + guest_memory(vmi) // PAGE_TABLE_RATIO
    if vmi.spec.domain.devices.autoattach_graphics_device is not False:
        total += GRAPHICS
    if emulated:
        total += TRANSLATED_CODE
    firmware = vmi.spec.domain.firmware
    if firmware is not None and firmware.kernel_boot is not None:
        total += KERNEL_BOOT
    if vmi.spec.architecture == "arm64":
        total += ARM_FIRMWARE
    if has_node_devices(vmi):
        total += NODE_DEVICES
    total += AGENT_PROBE * sum(by_agent(probe) for probe in (vmi.spec.readiness_probe, vmi.spec.liveness_probe))
    if protection(vmi.spec) in SEV_FAMILY:
        total += SEV
    if has_metrics(vmi.spec):
        total += METRICS
    total += _reserved(vmi)
    if ratio:
        total = math.ceil(total * Decimal(ratio))
    total += _nics(vmi, plugins)
    return -(-total // MIB) * MIB


def _nics(vmi: VirtualMachineInstance, plugins: Configured) -> int:
    rows = (bindingplugins.row(nic, plugins) for nic in vmi.spec.domain.devices.interfaces)
    return sum(row.memory for row in rows if row is not None) + bindingplugins.memory_of(vmi.spec, plugins)


def _reserved(vmi: VirtualMachineInstance) -> int:
    """What the owner of the machine knows it to need beyond all this."""
    memory = vmi.spec.domain.memory
    reserved = memory.reserved_overhead if memory is not None else None
    return max(parse_bytes(reserved.added_overhead or 0), 0) if reserved is not None else 0


def request(vmi: VirtualMachineInstance, extra: int, overcommit_percent: int = 100) -> int:
    """Bytes to request for the Pod. A request of the user's may be lower than the guest's memory: overcommit. Without
    one the cluster's percentage tells how much more than booked the guest may see. Neither is for a machine whose Pod
    can never get more than it asked for."""
    resources = vmi.spec.domain.resources
    asked = resources.requests.get("memory")
    if is_dedicated(vmi) or page_size(vmi):
        return beside_pages(vmi, max(parse_bytes(asked or 0), guest_memory(vmi))) + extra
    base = parse_bytes(asked) if asked is not None else guest_memory(vmi) * 100 // overcommit_percent
    return base if resources.overcommit_guest_overhead else base + extra


def page_size(vmi: VirtualMachineInstance) -> int:
    """Bytes of the huge pages in which the guest's memory lies; 0 for ordinary memory."""
    memory = vmi.spec.domain.memory
    return parse_bytes(memory.hugepages.page_size) if memory is not None and memory.hugepages is not None else 0


def beside_pages(vmi: VirtualMachineInstance, amount: int) -> int:
    """What is left of an amount of memory that counts the guest's, when that lies in huge pages."""
    return max(amount - guest_memory(vmi), 0) if page_size(vmi) else amount
