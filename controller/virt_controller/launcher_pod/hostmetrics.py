"""Figures of the node for the guest. Asked again here: the gate may have closed since the VMI was accepted."""

from __future__ import annotations

from virt_controller.launcher_pod.contributions import Parts, UnsupportedSpecError
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names
from virt_core.apis.facts import has_metrics
from virt_core.apis.pods import VolumeMount
from virt_core.apis.podvolumes import EmptyDirVolumeSource, Volume
from virt_core.apis.vmi import VirtualMachineInstance

_GATE = "DownwardMetrics"


def host_metrics(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """The disk lies in memory: it is written every few seconds, for as long as the machine runs."""
    if not has_metrics(vmi.spec):
        return Parts()
    if not config.cluster.has(_GATE):
        raise UnsupportedSpecError(f"downwardMetrics needs the feature gate {_GATE}")
    if all(volume.downward_metrics is None for volume in vmi.spec.volumes):
        return Parts()
    source = EmptyDirVolumeSource(medium=names.MEDIUM_MEMORY, size_limit="1Mi")
    volume = Volume(name=names.VOLUME_METRICS, empty_dir=source)
    return Parts(volumes=(volume,), mounts=(VolumeMount(name=volume.name, mount_path=names.PATH_METRICS),))
