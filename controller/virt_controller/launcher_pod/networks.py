"""The networks that a launcher Pod asks for beside its own, and the service mesh that it belongs to."""

from __future__ import annotations

from virt_controller.launcher_pod.contributions import Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names, podnetworks
from virt_core.apis.bindings import MASQUERADE, binding_of
from virt_core.apis.facts import in_mesh
from virt_core.apis.vmi import VirtualMachineInstance


def networks(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    return Parts(annotations=podnetworks.annotations_for(vmi, moving=config.move is not None))


def mesh(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    """What makes Istio put its proxy into the Pod, and have it take what a masqueraded guest sends as the Pod's own."""
    wanted = vmi.metadata.annotations.get(names.ANNOTATION_MESH)
    if wanted is None:
        return Parts()
    masqueraded = any(binding_of(nic) == MASQUERADE for nic in vmi.spec.domain.devices.interfaces)
    keys = (names.ANNOTATION_MESH_INTERFACES, names.ANNOTATION_MESH_INTERFACES_OLD)
    links = dict.fromkeys(keys, podnetworks.PRIMARY_BRIDGE) if in_mesh(vmi) and masqueraded else {}
    return Parts(labels={names.ANNOTATION_MESH: wanted}, annotations=links)
