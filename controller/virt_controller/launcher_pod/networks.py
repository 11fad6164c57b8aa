"""The networks that a launcher Pod asks for beside its own."""

from __future__ import annotations

from virt_controller.launcher_pod.contributions import Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import podnetworks
from virt_core.apis.vmi import VirtualMachineInstance


def networks(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    return Parts(annotations=podnetworks.annotations_for(vmi, moving=config.move is not None))
