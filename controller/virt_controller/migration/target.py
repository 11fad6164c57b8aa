"""What the Pod that a machine moves to must have because the machine runs already. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from virt_controller.hotplug.decide import is_ready
from virt_controller.launcher_pod.placement import processor
from virt_controller.vmi import resize
from virt_core.apis import names
from virt_core.apis.base import encode
from virt_core.apis.pods import Pod
from virt_core.apis.sizes import room_for, with_size
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import claim_of, is_hotplug

#: The guest sees what the processor of its first node has.
_HOST_MODELS = ("", "host-model")
_OF_PROCESSORS = (
    names.LABEL_PREFIX_CPU_MODEL_MIGRATION,
    names.LABEL_PREFIX_CPU_FEATURE,
    names.LABEL_PREFIX_CPU_VENDOR,
)


@dataclass(frozen=True, slots=True)
class Bringing:
    """Volumes that the target launcher cannot have by itself, and who holds them for it."""

    pod: Pod | None = None
    #: Others of the same job, which hold something else than what the machine has by now.
    unfit: tuple[Pod, ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.pod is not None and is_ready(self.pod)


def volume_going(vmi: VirtualMachineInstance) -> str:
    """A volume that the machine has and shall lose: nobody would bring it along."""
    asked = {each.name for each in vmi.spec.volumes} | {each.name for each in vmi.spec.utility_volumes}
    return next(
        (
            each.name
            for each in vmi.status.volume_status
            if each.hotplug_volume is not None and each.phase in names.VOLUME_IN_LAUNCHER and each.name not in asked
        ),
        "",
    )


def grown(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    """As if it asked for all that the machine has or is to get: there must be room for it when it arrives."""
    return with_size(vmi, resize.target(vmi))


def room_note(vmi: VirtualMachineInstance) -> dict[str, str]:
    """For the target Pod's annotations."""
    return {names.ANNOTATION_TARGET_ROOM: encode(room_for(resize.target(vmi))).decode()}


def is_outgrown(pod: Pod, vmi: VirtualMachineInstance) -> bool:
    """Whether the machine needs more by now than its target was made for."""
    made, needs = resize.made_for(pod), resize.target(vmi)
    return made is not None and needs.within(made) != needs


def has_other_claims(pod: Pod, vmi: VirtualMachineInstance) -> bool:
    """Whether the machine's volumes are to be on other claims by now than on those that its target was made with."""
    held = {
        each.persistent_volume_claim.claim_name for each in pod.spec.volumes if each.persistent_volume_claim is not None
    }
    return any(claim_of(each) and not is_hotplug(each) and claim_of(each) not in held for each in vmi.spec.volumes)


def processor_labels(vmi: VirtualMachineInstance, source: Pod | None, node: Mapping[str, str]) -> dict[str, str]:
    """Labels of the nodes on which the guest keeps all that it has seen of its processor. `node` are those of the node
    that it leaves. What its first move asked for stays: each later node may have more than the guest knows of."""
    cpu = vmi.spec.domain.cpu
    vendor = {key: value for key, value in node.items() if key.startswith(names.LABEL_PREFIX_CPU_VENDOR)}
    named = {key: value for key, value in processor(vmi) if node.get(key) == value}
    if cpu is not None and cpu.model not in _HOST_MODELS:
        return vendor | named
    asked = source.spec.node_selector if source is not None else {}
    if any(key.startswith(names.LABEL_PREFIX_CPU_MODEL_MIGRATION) for key in asked):
        return {key: value for key, value in asked.items() if key.startswith(_OF_PROCESSORS)}
    return vendor | named | _host_model(node)


def _host_model(node: Mapping[str, str]) -> dict[str, str]:
    """A model that the node itself does not offer for moves (an obsolete one) is not asked of others."""
    found = {}
    for key in node:
        prefix, _, name = key.partition("/")
        if prefix + "/" == names.LABEL_PREFIX_HOST_MODEL_CPU:
            found[names.LABEL_PREFIX_CPU_MODEL_MIGRATION + name] = "true"
        elif prefix + "/" == names.LABEL_PREFIX_HOST_MODEL_FEATURES:
            found[names.LABEL_PREFIX_CPU_FEATURE + name] = "true"
    return {key: value for key, value in found.items() if node.get(key) == value}
