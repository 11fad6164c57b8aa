"""The claim in which the state of firmware and TPM and of changed blocks is kept, as directories of the launcher."""

from __future__ import annotations

from virt_controller.launcher_pod.contributions import Parts, UnsupportedSpecError
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names
from virt_core.apis.hibernation import resumption
from virt_core.apis.keptstate import keeps_anything, keeps_tpm, keeps_variables, tracks_blocks
from virt_core.apis.podparts import PersistentVolumeClaimVolumeSource
from virt_core.apis.podroles import Role
from virt_core.apis.pods import VolumeMount
from virt_core.apis.podvolumes import Volume
from virt_core.apis.vmi import VirtualMachineInstance


def machine_state(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """The claim with the state that the machine goes on from. A machine that moves brings its own."""
    if config.role is not Role.ACTIVE:
        return Parts()
    try:
        wanted = resumption(vmi)
    except ValueError as error:
        raise UnsupportedSpecError(str(error)) from error
    if wanted is None:
        return Parts()
    source = PersistentVolumeClaimVolumeSource(claim_name=wanted.claim)
    volume = Volume(name=names.VOLUME_MACHINE_STATE, persistent_volume_claim=source)
    mount = VolumeMount(name=volume.name, mount_path=names.PATH_MACHINE_STATE)
    return Parts(volumes=(volume,), mounts=(mount,))


def kept_state(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """Each part is a directory of the claim. The launcher gets those that its machine needs."""
    if not keeps_anything(vmi):
        return Parts()
    if not config.state_claim:
        raise UnsupportedSpecError("there is no claim for what the machine keeps")
    parts = [names.KEPT_META]
    if keeps_tpm(vmi.spec):
        parts += [names.KEPT_TPM, names.KEPT_TPM_CA]
    if keeps_variables(vmi.spec):
        parts.append(names.KEPT_NVRAM)
    if tracks_blocks(vmi):
        parts.append(names.KEPT_BLOCKS)
    source = PersistentVolumeClaimVolumeSource(claim_name=config.state_claim)
    volume = Volume(name=names.VOLUME_KEPT_STATE, persistent_volume_claim=source)
    mounts = (
        VolumeMount(name=volume.name, mount_path=f"{names.PATH_KEPT_STATE}/{part}", sub_path=part) for part in parts
    )
    return Parts(volumes=(volume,), mounts=tuple(mounts))
