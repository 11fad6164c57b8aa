"""What a Pod gets to itself, by requests that equal their limits: huge pages, and whole CPUs that the kubelet pins.

Both come after the ordinary CPU and memory, and take their place.
"""

from __future__ import annotations

from virt_controller.launcher_pod import memory
from virt_controller.launcher_pod.contributions import Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names, owncpus
from virt_core.apis.pods import VolumeMount
from virt_core.apis.podvolumes import EmptyDirVolumeSource, Volume
from virt_core.apis.quantity import format_bytes, parse_bytes
from virt_core.apis.vmi import VirtualMachineInstance


def huge_pages(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    """The guest's memory, and a mount for a machine that is to have it as a file."""
    size = memory.page_size(vmi)
    if not size:
        return Parts()
    pages = {names.RESOURCE_PREFIX_HUGE_PAGES + format_bytes(size): format_bytes(memory.guest_memory(vmi))}
    volume = Volume(name=names.VOLUME_HUGE_PAGES, empty_dir=EmptyDirVolumeSource(medium=names.MEDIUM_HUGE_PAGES))
    mount = VolumeMount(name=volume.name, mount_path=names.PATH_HUGE_PAGES)
    return Parts(requests=pages, limits=pages, volumes=(volume,), mounts=(mount,))


def own_cpus(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """Only a Pod of the class Guaranteed with a whole number of CPUs has them to itself."""
    if not owncpus.is_dedicated(vmi):
        return Parts()
    extra = config.memory_overhead(vmi)
    limit = memory.beside_pages(vmi, parse_bytes(vmi.spec.domain.resources.limits.get("memory", 0))) + extra
    amounts = {
        "cpu": str(owncpus.own_cpus(vmi)),
        "memory": format_bytes(max(memory.request(vmi, extra), limit)),
    }
    return Parts(requests=amounts, limits=amounts)
