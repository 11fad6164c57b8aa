"""What a launcher is asked for, under a short name: two VMIs with the same name ask for the same machine. Pure.

Only what the launcher reads while its machine runs counts. What virt-handler itself writes (phase, targets, addresses)
and what others read (placement, labels) must not make it sync again.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.coming import without_coming
from virt_core.apis.domain import DomainSpec
from virt_core.apis.netplan import NetReport
from virt_core.apis.sizes import usable
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VolumeStatus
from virt_handler.decisions.nics import on_their_way

#: Maps come from the API server in any order.
_encoder = msgspec.json.Encoder(order="deterministic")


def digest(vmi: VirtualMachineInstance, report: NetReport | None = None) -> str:
    """`report` is what is wired, if that is known: a NIC that is not, is not asked for yet."""
    spec, status = without_coming(usable(vmi).spec, vmi.status), vmi.status
    here = {volume.name for volume in spec.volumes}
    volumes = sorted(_volume(volume) for volume in status.volume_status if volume.name in here and _is_told(volume))
    domain = _without_nics(spec.domain, on_their_way(vmi, report))
    asked = (domain, spec.volumes, spec.networks, status.vsock_cid or 0, volumes)
    return hashlib.sha256(_encoder.encode(asked)).hexdigest()[:32]


def _without_nics(domain: DomainSpec, coming: set[str]) -> DomainSpec:
    if not coming:
        return domain
    nics = [nic for nic in domain.devices.interfaces if nic.name not in coming]
    return replace(domain, devices=replace(domain.devices, interfaces=nics))


def _is_told(volume: VolumeStatus) -> bool:
    """Others are only our own notes of targets."""
    return volume.persistent_volume_claim_info is not None or volume.hotplug_volume is not None


def _volume(volume: VolumeStatus) -> tuple[str, bytes, bool]:
    plugged = volume.hotplug_volume is not None
    claim = _encoder.encode(volume.persistent_volume_claim_info)
    return volume.name, claim, plugged and volume.phase in names.VOLUME_IN_LAUNCHER
