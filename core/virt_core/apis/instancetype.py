"""Instance types and preferences: sizes and habits of machines, kept under a name, for one namespace or the cluster."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from virt_core.apis.base import REQUIRED, Struct, Uint32
from virt_core.apis.devices import GPU, HostDevice
from virt_core.apis.domain import NUMA, DiskIOThreads, Hugepages, LaunchSecurity, Realtime
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.quantity import Quantity


class CPUInstancetype(Struct):
    """The CPU of the machine."""

    guest: Annotated[Uint32, REQUIRED] = 0  #: How many vCPUs the guest sees.
    model: str | None = None  #: The CPU model.
    #: Give each vCPU a CPU of its own.
    dedicated_cpu_placement: bool | None = field(default=None, name="dedicatedCPUPlacement")
    numa: NUMA | None = None  #: The NUMA mapping.
    isolate_emulator_thread: bool | None = None  #: Give the emulator a CPU of its own.
    realtime: Realtime | None = None  #: Real time scheduling.
    max_sockets: Uint32 | None = None  #: Sockets that may be reached while running.


class MemoryInstancetype(Struct):
    """The memory of the machine."""

    guest: Annotated[Quantity, REQUIRED] = "0"  #: What the guest sees.
    hugepages: Hugepages | None = None  #: Back it with huge pages.
    #: How much less than the guest sees is reserved, in percent.
    overcommit_percent: Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": 100})] = 0
    max_guest: Quantity | None = None  #: What may be reached while running.


class VirtualMachineInstancetypeSpec(Struct):
    """A size."""

    cpu: Annotated[CPUInstancetype, REQUIRED] = field(default_factory=CPUInstancetype)  #: The CPU.
    memory: Annotated[MemoryInstancetype, REQUIRED] = field(default_factory=MemoryInstancetype)  #: The memory.
    node_selector: dict[str, str] = {}  #: Labels that the node must have.
    scheduler_name: str = ""  #: The scheduler.
    gpus: list[GPU] = []  #: GPUs of the node.
    host_devices: list[HostDevice] = []  #: Devices of the node.
    io_threads_policy: str | None = None  #: shared, auto or supplementalPool.
    io_threads: DiskIOThreads | None = None  #: The pool of IO threads.
    launch_security: LaunchSecurity | None = None  #: Memory encryption. Deprecated: use a preference.
    annotations: dict[str, str] = {}  #: Annotations of the VMI.


class VirtualMachineInstancetype(Struct):
    """A size of machines, for its namespace."""

    api_version: str = "instancetype.kubevirt.io/v1beta1"
    kind: str = "VirtualMachineInstancetype"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: The size.
    spec: Annotated[VirtualMachineInstancetypeSpec, REQUIRED] = field(default_factory=VirtualMachineInstancetypeSpec)


class VirtualMachineClusterInstancetype(Struct):
    """A size of machines, for the whole cluster."""

    api_version: str = "instancetype.kubevirt.io/v1beta1"
    kind: str = "VirtualMachineClusterInstancetype"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: The size.
    spec: Annotated[VirtualMachineInstancetypeSpec, REQUIRED] = field(default_factory=VirtualMachineInstancetypeSpec)


class VirtualMachinePreference(Struct):
    """What a machine gets where its author said nothing, for its namespace."""

    api_version: str = "instancetype.kubevirt.io/v1beta1"
    kind: str = "VirtualMachinePreference"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: The preferences.
    spec: Annotated[VirtualMachinePreferenceSpec, REQUIRED] = field(default_factory=VirtualMachinePreferenceSpec)


class VirtualMachineClusterPreference(Struct):
    """What a machine gets where its author said nothing, for the whole cluster."""

    api_version: str = "instancetype.kubevirt.io/v1beta1"
    kind: str = "VirtualMachineClusterPreference"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: The preferences.
    spec: Annotated[VirtualMachinePreferenceSpec, REQUIRED] = field(default_factory=VirtualMachinePreferenceSpec)
