"""Makes everything that the VMI's disks stand on. Idempotent: a second call finds what the first one made."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import field
from datetime import datetime
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.credentials import Way, deliveries
from virt_core.apis.devices import Disk
from virt_core.apis.keptstate import tracked_volumes, tracks_blocks
from virt_core.apis.tags import tag_paths
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import Volume, claim_of
from virt_core.runtime.logs import get_logger
from virt_core.runtime.record import record
from virt_launcher.disks import cloud_init, file_volumes, iso
from virt_launcher.disks.claims import ClaimDisks
from virt_launcher.disks.container_disk import ImageFile, kernel_file, make_overlay
from virt_launcher.disks.credentials import keys_in
from virt_launcher.disks.empty_disk import make_empty_disk
from virt_launcher.disks.held import Identity
from virt_launcher.disks.sources import (
    DiskSource,
    FirmwareFiles,
    KernelFiles,
    check_volume_name,
    directory_supports_direct_io,
)
from virt_launcher.errors import InvalidVMIError
from virt_launcher.process.children import Children
from virt_launcher.settings import Paths

log = get_logger(__name__)


@record(slots=True)
class Prepared:
    """Sources by volume name, the kernel, what the firmware hands over, and the images that are still being built."""

    sources: dict[str, DiskSource] = field(default_factory=dict)
    kernel: KernelFiles = field(default_factory=KernelFiles)
    firmware: FirmwareFiles = field(default_factory=FirmwareFiles)
    jobs: list[iso.IsoJob] = field(default_factory=list)
    #: Config drives that shall tell the guest of devices whose addresses only the defined machine has.
    untold: list[Callable[[Sequence[cloud_init.Device]], iso.IsoJob]] = field(default_factory=list)
    #: Files beside the disks that QEMU must turn out to hold.
    files: list[Identity] = field(default_factory=list)

    def identities(self) -> list[Identity]:
        """The files that QEMU must turn out to hold."""
        pairs = ((source.identity, source.layer) for source in self.sources.values())
        return [each for pair in pairs for each in pair if each is not None] + self.files

    def tell(self, devices: Sequence[cloud_init.Device]) -> None:
        self.jobs += [begin(devices) for begin in self.untold]
        self.untold.clear()

    def finish(self) -> None:
        self.tell(())
        for job in self.jobs:
            job.finish()


class DiskPreparer:
    def __init__(self, paths: Paths, children: Children) -> None:
        self._paths = paths
        self._children = children
        #: What others make of a cloud-init image, by the name of its volume.
        self.on_cloud_init: Callable[[cloud_init.IsoPlan, str, VirtualMachineInstance], cloud_init.IsoPlan] = (
            lambda plan, _volume, _vmi: plan
        )

    def prepare(self, vmi: VirtualMachineInstance, made: Container[str] = (), *, arriving: bool = False) -> Prepared:
        """`made` are volumes that a running machine has already; nothing of theirs is touched. `arriving`: the machine
        runs elsewhere still, and uses what both launchers see."""
        prepared = Prepared(kernel=self._kernel(vmi), firmware=self._firmware(vmi))
        wanted = {disk.name for disk in vmi.spec.domain.devices.disks if disk.name not in made}
        for index, volume in enumerate(vmi.spec.volumes):
            if volume.name in wanted:
                self._volume(vmi, index, volume, prepared)
        for index, disk in enumerate(vmi.spec.domain.devices.disks):
            self._match(index, disk, prepared)
        if tracks_blocks(vmi):
            self._track(vmi, prepared, arriving=arriving)
        return prepared

    def rooms(self, vmi: VirtualMachineInstance, there: Container[str]) -> dict[str, int]:
        """How large the disks of claims may be by now, by volume; of those that are `there`."""
        claims = ClaimDisks(self._paths, vmi)
        listed = [(f"spec.volumes[{index}]", v) for index, v in enumerate(vmi.spec.volumes) if v.name in there]
        return {volume.name: room for where, volume in listed if (room := claims.room(volume, where))}

    def _volume(self, vmi: VirtualMachineInstance, index: int, volume: Volume, prepared: Prepared) -> None:
        where = f"spec.volumes[{index}]"
        check_volume_name(volume.name, f"{where}.name")
        if volume.container_disk is not None:
            disk = volume.container_disk
            image = ImageFile(self._paths.images / f"disk_{index}", f"{where}.containerDisk", disk.image)
            overlay = self._paths.disk_data / volume.name / "disk.qcow2"
            prepared.sources[volume.name] = make_overlay(image, disk.path, overlay)
        elif volume.empty_disk is not None:
            path = self._paths.disk_data / volume.name / "empty.qcow2"
            capacity = volume.empty_disk.capacity
            prepared.sources[volume.name] = make_empty_disk(path, capacity, f"{where}.emptyDisk.capacity")
        elif volume.downward_metrics is not None:
            from virt_launcher.hostmetrics.disk import make_disk  # Few machines need it.

            prepared.sources[volume.name] = make_disk(self._paths.metrics_disk)
        elif (plan := self._cloud_init(vmi, volume, where)) is not None:
            plan = self.on_cloud_init(plan, volume.name, vmi)
            told = volume.cloud_init_config_drive is not None and any(tag_paths(vmi.spec))
            target = self._paths.cloud_init / f"{volume.name}.iso"
            self._begin_iso(target, volume.name, plan, prepared, created(vmi), told=told)
        elif (plan := file_volumes.plan(volume, where, self._paths)) is not None:
            self._begin_iso(self._paths.file_disks / f"{volume.name}.iso", volume.name, plan, prepared, created(vmi))
        elif (source := ClaimDisks(self._paths, vmi).source(volume, where)) is not None:
            prepared.sources[volume.name] = source
        else:
            raise InvalidVMIError(where, f"the source of volume {volume.name!r} is not built yet")

    def _cloud_init(self, vmi: VirtualMachineInstance, volume: Volume, where: str) -> cloud_init.IsoPlan | None:
        secrets = cloud_init.SecretDirs(self._paths.secret(volume.name), self._paths.secret(f"{volume.name}-network"))
        if volume.cloud_init_no_cloud is not None:
            keys = self._keys(vmi, Way.NO_CLOUD)
            return cloud_init.no_cloud(vmi, volume.cloud_init_no_cloud, f"{where}.cloudInitNoCloud", secrets, keys)
        if volume.cloud_init_config_drive is not None:
            source = volume.cloud_init_config_drive
            keys = self._keys(vmi, Way.CONFIG_DRIVE)
            return cloud_init.config_drive(vmi, source, f"{where}.cloudInitConfigDrive", secrets, keys)
        return None

    def _keys(self, vmi: VirtualMachineInstance, way: Way) -> tuple[str, ...]:
        return keys_in(self._paths.credentials(each.secret) for each in deliveries(vmi) if each.way is way)

    def _begin_iso(
        self, target: Path, name: str, plan: cloud_init.IsoPlan, prepared: Prepared, moment: int, *, told: bool = False
    ) -> None:
        """`told`: it is begun only when the machine's devices are known."""

        def begin(devices: Sequence[cloud_init.Device] = ()) -> iso.IsoJob:
            return iso.begin(cloud_init.with_devices(plan, devices), target, self._children, moment)

        target.parent.mkdir(parents=True, exist_ok=True)
        if told and not target.exists():
            prepared.untold.append(begin)
        elif not target.exists():
            prepared.jobs.append(begin())
        # The image is not there yet; its directory tells whether O_DIRECT works.
        prepared.sources[name] = DiskSource(str(target), "raw", None, directory_supports_direct_io(target.parent))

    def _match(self, index: int, disk: Disk, prepared: Prepared) -> None:
        match = disk.block_size.match_volume if disk.block_size is not None else None
        if match is None or match.enabled is False or disk.name not in prepared.sources:
            return
        from virt_launcher.disks.block_sizes import matched  # Few machines need it.

        field = f"spec.domain.devices.disks[{index}].blockSize.matchVolume"
        prepared.sources[disk.name] = matched(prepared.sources[disk.name], field)

    def _track(self, vmi: VirtualMachineInstance, prepared: Prepared, *, arriving: bool) -> None:
        """A machine whose blocks cannot be tracked runs all the same; its backups wait, and its status says so."""
        from virt_launcher.disks import tracking  # Few machines need it.

        directory = self._paths.kept_state / names.KEPT_BLOCKS
        places = {volume.name: index for index, volume in enumerate(vmi.spec.volumes)}
        for volume in tracked_volumes(vmi.spec):
            source, name = prepared.sources.get(volume.name), volume.name
            if source is None or source.read_only:
                continue
            try:
                layer = tracking.layer_of(
                    directory, name, claim_of(volume) or name, source, f"spec.volumes[{places[name]}]"
                )
                prepared.sources[name] = tracking.lay(source, layer, in_use=arriving)
            except OSError as error:
                log.warning("the changed blocks of a volume cannot be tracked", volume=name, error=str(error))

    def _firmware(self, vmi: VirtualMachineInstance) -> FirmwareFiles:
        firmware = vmi.spec.domain.firmware
        if (firmware is None or firmware.acpi is None) and names.ANNOTATION_IGNITION not in vmi.metadata.annotations:
            return FirmwareFiles()
        from virt_launcher.disks.firmware_files import make_firmware_files  # Few machines need it.

        return make_firmware_files(vmi, self._paths)

    def _kernel(self, vmi: VirtualMachineInstance) -> KernelFiles:
        firmware = vmi.spec.domain.firmware
        boot = firmware.kernel_boot if firmware is not None else None
        if boot is None or boot.container is None:
            return KernelFiles()
        container, root = boot.container, self._paths.kernel_boot
        where = "spec.domain.firmware.kernelBoot.container"

        def find(path: str, name: str) -> str:
            return kernel_file(root, f"{where}.{name}", container.image, path) if path else ""

        return KernelFiles(find(container.kernel_path, "kernelPath"), find(container.initrd_path, "initrdPath"))


def created(vmi: VirtualMachineInstance) -> int:
    """When the VMI was made, in seconds: the time of its images, wherever they are made."""
    text = vmi.metadata.creation_timestamp
    return int(datetime.fromisoformat(text).timestamp()) if text else 0
