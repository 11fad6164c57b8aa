"""The guest's processor: its model, its topology, and the sockets that it may get later."""

from __future__ import annotations

import math

from virt_core.apis.quantity import QuantityError, parse_quantity
from virt_core.runtime.record import record
from virt_launcher.convert.context import Context
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Cpu, CpuFeature, VCpu, VCpuCount
from virt_launcher.errors import InvalidVMIError

_HOST_MODES = ("host-model", "host-passthrough")


@record(frozen=True, slots=True)
class Topology:
    sockets: int
    cores: int
    threads: int
    max_sockets: int

    @property
    def vcpus(self) -> int:
        return self.sockets * self.per_socket

    @property
    def max_vcpus(self) -> int:
        return self.max_sockets * self.per_socket

    @property
    def per_socket(self) -> int:
        return self.cores * self.threads


def configure_cpu(context: Context, domain: Domain) -> None:
    topology = topology_of(context)
    cpu = _model(context)
    cpu.sockets, cpu.cores, cpu.threads = topology.max_sockets, topology.cores, topology.threads
    cpu.features = _features(context, cpu.mode == "custom")
    if cpu.mode == "maximum" and any(feature.policy == "require" for feature in cpu.features):
        cpu.check = "full"  # libvirt's own choice would be to start without what the emulator lacks.
    domain.cpu = cpu


def configure_vcpus(context: Context, domain: Domain) -> None:
    """Sockets that may come later are declared, so that they can be plugged in; the first one always stays."""
    topology = topology_of(context)
    domain.vcpu = VCpuCount(placement="static", value=topology.max_vcpus)
    if topology.max_vcpus == topology.vcpus:
        return
    domain.vcpu.current = topology.vcpus
    domain.vcpus = [
        VCpu(id=number, enabled=number < topology.vcpus, hotpluggable=number >= topology.per_socket)
        for number in range(topology.max_vcpus)
    ]


def topology_of(context: Context) -> Topology:
    cpu = context.cpu
    given = cpu.sockets or cpu.cores or cpu.threads
    sockets = (cpu.sockets or 1) if given else _from_resources(context)
    return Topology(sockets, cpu.cores or 1, cpu.threads or 1, max(cpu.max_sockets, sockets))


def _from_resources(context: Context) -> int:
    """Nobody gave a topology: as many sockets as the Pod has CPUs."""
    resources = context.vmi.spec.domain.resources
    for name, values in (("limits", resources.limits), ("requests", resources.requests)):
        if "cpu" not in values:
            continue
        try:
            return max(math.ceil(parse_quantity(values["cpu"])), 1)
        except QuantityError as error:
            raise InvalidVMIError(f"spec.domain.resources.{name}.cpu", str(error)) from error
    return 1


def _model(context: Context) -> Cpu:
    model = context.cpu.model or context.architecture.cpu_model
    if model not in _HOST_MODES:
        # Software emulation lacks some features of any named model; the guest then sees what is there.
        check = None if context.kvm else "none"
        return Cpu(mode="custom", match="exact", check=check, model=model)
    # There is no host to copy under emulation: the guest gets everything that the emulator can do.
    return Cpu(mode=model if context.kvm else "maximum")


def _features(context: Context, named_model: bool) -> list[CpuFeature]:
    features = [CpuFeature(policy=f.policy or "require", name=f.name) for f in context.cpu.features]
    if named_model and context.kvm and context.architecture.pc and all(f.name != "mpx" for f in features):
        # Old models carry mpx, which new processors have lost.
        features.append(CpuFeature(policy="disable", name="mpx"))
    return features
