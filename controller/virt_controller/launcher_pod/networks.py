"""The networks that a launcher Pod asks for beside its own, and the service mesh that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator

from virt_controller.launcher_pod.contributions import NotPermittedError, Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import bindingplugins, names, podnetworks
from virt_core.apis.bindings import MASQUERADE, binding_of
from virt_core.apis.facts import in_mesh
from virt_core.apis.nodedevices import cards
from virt_core.apis.podnetworks import Selection
from virt_core.apis.podparts import DownwardAPIVolumeFile, ObjectFieldSelector
from virt_core.apis.pods import EnvVar, VolumeMount
from virt_core.apis.podvolumes import DownwardAPIVolumeSource, Volume
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


def network_devices(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """How the launcher learns which device the Pod got for which network: by name of the resource, where we asked for
    it, and by a file of what the network's plugin told (`virt_controller.vmi.networks`)."""
    given = [
        EnvVar(name=names.network_resource_env(network), value=resource)
        for network, resource in config.network_resources.items()
    ]
    if not {nic.name for nic in cards(vmi.spec)} & podnetworks.secondary(vmi.spec).keys():
        return Parts(env=tuple(given))
    path = f"metadata.annotations['{names.ANNOTATION_NETWORK_INFO}']"
    file = DownwardAPIVolumeFile(path=names.FILE_NETWORK_INFO, field_ref=ObjectFieldSelector(field_path=path))
    volume = Volume(name=names.VOLUME_NETWORK_INFO, downward_api=DownwardAPIVolumeSource(items=[file]))
    mount = VolumeMount(name=volume.name, mount_path=names.PATH_POD_INFO, read_only=True)
    return Parts(env=tuple(given), volumes=(volume,), mounts=(mount,))


def mesh(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    """What makes Istio put its proxy into the Pod, and have it take what a masqueraded guest sends as the Pod's own."""
    wanted = vmi.metadata.annotations.get(names.ANNOTATION_MESH)
    if wanted is None:
        return Parts()
    masqueraded = any(binding_of(nic) == MASQUERADE for nic in vmi.spec.domain.devices.interfaces)
    keys = (names.ANNOTATION_MESH_INTERFACES, names.ANNOTATION_MESH_INTERFACES_OLD)
    links = dict.fromkeys(keys, podnetworks.PRIMARY_BRIDGE) if in_mesh(vmi) and masqueraded else {}
    return Parts(labels={names.ANNOTATION_MESH: wanted}, annotations=links)
