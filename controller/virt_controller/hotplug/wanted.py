"""The volumes that a VMI wants beside those of its launcher Pod, and how each claim stands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from virt_core.apis import names
from virt_core.apis.datavolume import DONE, FIRST_CONSUMER, WAITING
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import Volume, claim_of, is_hotplug


@dataclass(frozen=True, slots=True)
class Wanted:
    """A volume by its name in the VMI, and its claim."""

    name: str
    claim: str
    read_only: bool = False
    #: A directory of the launcher, no disk of the guest: a block device cannot be one.
    directory: bool = False


@dataclass(frozen=True, slots=True)
class Storage:
    """What there is in the VMI's namespace."""

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    #: The phases of DataVolumes, by their names, which are those of their claims.
    phases: Mapping[str, str] = field(default_factory=dict)

    def is_ready(self, claim: str) -> bool:
        found = self.claims.get(claim)
        return found is not None and found.status.phase == "Bound" and self.phases.get(claim, DONE) == DONE

    def brings(self, volume: Wanted) -> bool:
        return self.is_ready(volume.claim) and not self.is_misfit(volume)

    def is_misfit(self, volume: Wanted) -> bool:
        return volume.directory and volume.claim in self.claims and self.is_block(volume.claim)

    def waits_for_user(self, claim: str) -> bool:
        """Nobody binds it before some Pod uses it. A claim that somebody is just making loses nothing by that."""
        found = self.claims.get(claim)
        if found is None or found.status.phase == "Bound" or found.metadata.deletion_timestamp:
            return False
        return self.phases.get(claim, FIRST_CONSUMER) in WAITING

    def is_block(self, claim: str) -> bool:
        return self.claims[claim].spec.volume_mode == names.VOLUME_MODE_BLOCK


def wanted(vmi: VirtualMachineInstance, launcher: Pod) -> list[Wanted]:
    """What the launcher Pod has by itself is none of it, whatever the VMI says: it was there from the start."""
    there = claims_of(launcher)
    return [each for each in _asked(vmi) if each.claim not in there]


def _asked(vmi: VirtualMachineInstance) -> Iterator[Wanted]:
    for volume in vmi.spec.volumes:
        if is_hotplug(volume):
            yield Wanted(volume.name, claim_of(volume), _read_only(volume))
    for utility in vmi.spec.utility_volumes:
        yield Wanted(utility.name, utility.claim_name, utility.read_only, directory=True)


def _read_only(volume: Volume) -> bool:
    source = volume.persistent_volume_claim or volume.memory_dump
    return source is not None and source.read_only


def claims_of(pod: Pod) -> set[str]:
    sources = (volume.persistent_volume_claim for volume in pod.spec.volumes)
    return {source.claim_name for source in sources if source is not None}
