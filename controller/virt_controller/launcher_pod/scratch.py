"""The writable places of an otherwise read-only container, and how much may lie in each.

A Pod that goes beyond is evicted, so these are far above what is ever used: the launcher itself keeps to less, above
all with the console log, which the guest can flood. The guest's own disks have no limit here: each has its size, that
of an image is not known before it was pulled, and a guest that fills its disk has done nothing wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from virt_controller.launcher_pod.contributions import Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names
from virt_core.apis.pods import VolumeMount
from virt_core.apis.podvolumes import EmptyDirVolumeSource, Volume
from virt_core.apis.quantity import format_bytes, parse_bytes
from virt_core.apis.vmi import VirtualMachineInstance

STORAGE = "ephemeral-storage"


@dataclass(frozen=True, slots=True)
class Place:
    path: str
    limit: str | None


#: The private one holds three logs with an older part each, the firmware's variables (64 MiB on arm64) and a TPM.
PLACES = {
    names.VOLUME_PRIVATE: Place(names.PATH_PRIVATE, "256Mi"),
    names.VOLUME_PUBLIC: Place(names.PATH_SHARE, "16Mi"),
    names.VOLUME_SOCKETS: Place(names.PATH_SOCKETS, "16Mi"),
    names.VOLUME_LIBVIRT: Place(names.PATH_LIBVIRT, "64Mi"),
    names.VOLUME_EPHEMERAL_DISKS: Place(names.PATH_EPHEMERAL_DISKS, None),
    names.VOLUME_TMP: Place("/tmp", "256Mi"),
}
#: What a machine without local disks writes: its logs and sockets.
_BOOKED = 50 * 10**6


def scratch(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    return Parts(
        volumes=tuple(
            Volume(name=name, empty_dir=EmptyDirVolumeSource(size_limit=place.limit)) for name, place in PLACES.items()
        ),
        mounts=tuple(VolumeMount(name=name, mount_path=place.path) for name, place in PLACES.items()),
        requests={STORAGE: format_bytes(_asked(vmi.spec.domain.resources.requests) + _BOOKED)},
        limits=_limits(vmi),
    )


def _limits(vmi: VirtualMachineInstance) -> dict[str, str]:
    """What the VMI says is for its disks; ours comes on top. A limit of our own could only hit a guest's disk."""
    limits = vmi.spec.domain.resources.limits
    if STORAGE not in limits:
        return {}
    own = sum(parse_bytes(place.limit) for place in PLACES.values() if place.limit)
    return {STORAGE: format_bytes(_asked(limits) + own)}


def _asked(amounts: dict[str, str | int | float]) -> int:
    return parse_bytes(amounts.get(STORAGE, 0))
