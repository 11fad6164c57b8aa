"""The networks that a launcher Pod asks for beside its own."""

from __future__ import annotations

from collections.abc import Iterator

from virt_controller.launcher_pod.contributions import NotPermittedError, Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import bindingplugins, podnetworks
from virt_core.apis.podnetworks import Selection
from virt_core.apis.vmi import VirtualMachineInstance


def networks(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """Asked again here: a plugin may have left the configuration since the VMI was accepted."""
    for path, why in bindingplugins.unknown(vmi.spec, config.cluster.network_bindings):
        raise NotPermittedError(f"spec.{path}: {why}")
    plugins = list(_plugins(vmi, config))
    return Parts(annotations=podnetworks.annotations_for(vmi, moving=config.move is not None, plugins=plugins))


def _plugins(vmi: VirtualMachineInstance, config: TemplateConfig) -> Iterator[Selection]:
    """The CNI plugins of network binding plugins, one call for each NIC."""
    for nic in vmi.spec.domain.devices.interfaces:
        plugin = bindingplugins.plugin_of(nic, config.cluster.network_bindings)
        if plugin is not None and plugin.network_attachment_definition and nic.state != podnetworks.ABSENT:
            yield podnetworks.of_plugin(plugin.network_attachment_definition, nic.name, vmi.metadata.namespace)
