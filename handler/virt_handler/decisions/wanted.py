"""What a launcher is asked for, under a short name: two VMIs with the same name ask for the same machine. Pure.

Only what the launcher reads while its machine runs counts. What virt-handler itself writes (phase, targets, addresses)
and what others read (placement, labels) must not make it sync again.
"""

from __future__ import annotations

import hashlib

import msgspec

from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VolumeStatus

#: Phases of a hot-plugged volume in which the launcher can use it.
_USABLE = frozenset({"MountedToPod", "Ready"})
#: Maps come from the API server in any order.
_encoder = msgspec.json.Encoder(order="deterministic")


def digest(vmi: VirtualMachineInstance) -> str:
    spec, status = vmi.spec, vmi.status
    volumes = sorted(_volume(volume) for volume in status.volume_status if _is_told(volume))
    asked = (spec.domain, spec.volumes, spec.networks, status.vsock_cid or 0, volumes)
    return hashlib.sha256(_encoder.encode(asked)).hexdigest()[:32]


def _is_told(volume: VolumeStatus) -> bool:
    """Others are only our own notes of targets."""
    return volume.persistent_volume_claim_info is not None or volume.hotplug_volume is not None


def _volume(volume: VolumeStatus) -> tuple[str, bytes, bool]:
    plugged = volume.hotplug_volume is not None
    claim = _encoder.encode(volume.persistent_volume_claim_info)
    return volume.name, claim, plugged and volume.phase in _USABLE
