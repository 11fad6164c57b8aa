"""Defaults of devices, volumes and networks."""

from __future__ import annotations

from virt_core.apis.devices import (
    Diag288Watchdog,
    Disk,
    DiskTarget,
    I6300ESBWatchdog,
)
from virt_core.apis.interfaces import default_interface
from virt_core.apis.networks import Network, PodNetwork
from virt_core.apis.vmi import VirtualMachineInstanceSpec as Spec
from virt_core.instancetype.expand import DEFAULT_NETWORK
from virt_core.kube.configvalues import ClusterConfig


def image_pull_policy(spec: Spec, _: ClusterConfig) -> None:
    for volume in spec.volumes:
        if volume.container_disk is not None and not volume.container_disk.image_pull_policy:
            volume.container_disk.image_pull_policy = pull_policy_of(volume.container_disk.image)


def pull_policy_of(image: str) -> str:
    """A moving tag is looked up each time."""
    moving = image.endswith(":latest") or (":" not in image and "@" not in image)
    return "Always" if moving else "IfNotPresent"


def pod_network(spec: Spec, config: ClusterConfig) -> None:
    """A VMI that says nothing about networks gets a NIC on the Pod's."""
    devices = spec.domain.devices
    if devices.autoattach_pod_interface is False or spec.networks or devices.interfaces:
        return
    devices.interfaces = [default_interface(DEFAULT_NETWORK, config.default_network_interface)]
    spec.networks = [Network(name=DEFAULT_NETWORK, pod=PodNetwork())]


def disks_of_volumes(spec: Spec, _: ClusterConfig) -> None:
    devices = spec.domain.devices
    shown = {disk.name for disk in devices.disks} | {filesystem.name for filesystem in devices.filesystems}
    missing = [volume.name for volume in spec.volumes if volume.name not in shown and volume.memory_dump is None]
    if missing:
        devices.disks = [*devices.disks, *(Disk(name=name) for name in dict.fromkeys(missing))]


def disk_targets(spec: Spec, _: ClusterConfig) -> None:
    for disk in spec.domain.devices.disks:
        if disk.disk is None and disk.lun is None and disk.cdrom is None:
            disk.disk = DiskTarget()
        if disk.cdrom is not None:
            disk.cdrom.read_only = True if disk.cdrom.read_only is None else disk.cdrom.read_only
            disk.cdrom.tray = disk.cdrom.tray or "closed"


def inputs(spec: Spec, _: ClusterConfig) -> None:
    for device in spec.domain.devices.inputs:
        device.bus = device.bus or "usb"
        device.type = device.type or "tablet"


def buses(spec: Spec, _: ClusterConfig) -> None:
    bus = "sata" if spec.architecture == "amd64" else "virtio"
    for disk in spec.domain.devices.disks:
        for target in (disk.disk, disk.lun, disk.cdrom):
            if target is not None:
                target.bus = target.bus or bus


def watchdog(spec: Spec, _: ClusterConfig) -> None:
    device = spec.domain.devices.watchdog
    if device is None:
        return
    if device.i6300esb is None and device.diag288 is None:
        if spec.architecture == "s390x":
            device.diag288 = Diag288Watchdog()
        elif spec.architecture == "amd64":
            device.i6300esb = I6300ESBWatchdog()
    for model in (device.i6300esb, device.diag288):
        if model is not None:
            model.action = model.action or "reset"
