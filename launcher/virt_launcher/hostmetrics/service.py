"""Starts what a machine's guest is to have: the writer of its disk, the server of its port."""

from __future__ import annotations

import threading

from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.hostmetrics.disk import DiskWriter
from virt_launcher.hostmetrics.figures import Figures
from virt_launcher.hostmetrics.port import PortServer
from virt_launcher.hypervisor.ports import Hypervisor
from virt_launcher.settings import Settings


def begin(vmi: VirtualMachineInstance, settings: Settings, hypervisor: Hypervisor, stop: threading.Event) -> None:
    """Daemon threads: a launcher that ends does not wait for a guest."""
    figures, paths = Figures(vmi.status.node_name, hypervisor), settings.paths
    if any(volume.downward_metrics is not None for volume in vmi.spec.volumes):
        writer = DiskWriter(paths.metrics_disk, figures.collect, stop)
        threading.Thread(target=writer.run, name="metrics-disk", daemon=True).start()
    if vmi.spec.domain.devices.downward_metrics is not None:
        server = PortServer(paths.metrics_socket(settings.uid), figures.collect, stop)
        threading.Thread(target=server.run, name="metrics-port", daemon=True).start()
