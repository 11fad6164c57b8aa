"""The launcher's parts around a fake hypervisor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.fake_hypervisor import FakeHypervisor

from tests.unit.launcher.cases import UID
from virt_core.apis.base import from_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.disks.prepare import DiskPreparer
from virt_launcher.machine.guest_agent import GuestAgent
from virt_launcher.machine.manager import DomainManager
from virt_launcher.machine.monitor import Monitor
from virt_launcher.process.children import Children, Ended
from virt_launcher.settings import Paths, Settings

QEMU_PID = 4711


@dataclass
class Parts:
    settings: Settings
    hypervisor: FakeHypervisor
    children: Children
    monitor: Monitor
    agent: GuestAgent
    manager: DomainManager
    kvm: bool = False

    def qemu_ends(self, exit_code: int | None = None, signal_number: int | None = None) -> None:
        """QEMU is reaped; libvirt's view of it is the test's business."""
        self.monitor._orphan_ended(Ended(QEMU_PID, exit_code, signal_number))


def paths_in(root: Path) -> Paths:
    return Paths(
        share=root / "share",
        private=root / "private",
        ephemeral=root / "ephemeral",
        libvirt=root / "libvirt",
        images=root / "images",
        kernel_boot=root / "kernel",
        termination_log=root / "termination-log",
        devices=root / "dev",
        service_account=root / "serviceaccount",
    )


def make_parts(root: Path, **options: Any) -> Parts:
    settings = Settings(name="vm1", namespace="ns", uid=UID, paths=paths_in(root), allow_emulation=True, **options)
    hypervisor, children = FakeHypervisor(settings.domain_name), Children()
    monitor, agent = Monitor(settings, children), GuestAgent(hypervisor)
    pid_file = settings.paths.qemu_pid_file(settings.domain_name)
    pid_file.parent.mkdir(parents=True)
    pid_file.write_text(str(QEMU_PID))
    parts = Parts(settings, hypervisor, children, monitor, agent, manager=None)  # type: ignore[arg-type]
    preparer = DiskPreparer(settings.paths, children)
    parts.manager = DomainManager(settings, hypervisor, preparer, monitor, agent, kvm=lambda: parts.kvm)
    return parts


def plain_vmi(**spec: Any) -> VirtualMachineInstance:
    body = {"metadata": {"name": "vm1", "namespace": "ns", "uid": UID}}
    domain = {"memory": {"guest": "64Mi"}, "devices": {}}
    return from_plain(body | {"spec": {"domain": domain} | spec}, VirtualMachineInstance)
