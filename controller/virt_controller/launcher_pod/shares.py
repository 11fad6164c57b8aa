"""Volumes that the guest mounts as a filesystem: a container for each, in which virtiofsd sees that volume and nothing
else (decisions/0030).

It runs as the launcher does: no root, no capability, a read-only root. Its end is the end of QEMU's connection.
"""

from __future__ import annotations

from virt_controller.launcher_pod import memory
from virt_controller.launcher_pod.contributions import Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_controller.launcher_pod.volumes import Wish, rendered, source_of
from virt_core.apis import names
from virt_core.apis.owncpus import is_dedicated
from virt_core.apis.podparts import ResourceRequirements
from virt_core.apis.pods import Capabilities, Container, SecurityContext, VolumeMount
from virt_core.apis.podvolumes import EmptyDirVolumeSource, Volume
from virt_core.apis.quantity import format_bytes
from virt_core.apis.vmi import VirtualMachineInstance

PROGRAM = "virt-share"
#: As in KubeVirt; for sockets nobody needs more.
_SOCKETS_LIMIT = "1Mi"
_CPU, _CPU_LIMIT = "10m", "100m"
_MEMORY, _MEMORY_LIMIT = 10**6, 80 * 10**6
_STORED = frozenset({"persistentVolumeClaim", "dataVolume"})
_SHAREABLE = _STORED | {"configMap", "secret", "downwardAPI", "serviceAccount", "containerPath"}


def shares(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    filesystems = vmi.spec.domain.devices.filesystems
    if not filesystems:
        return Parts()
    found = {volume.name: Wish(index, volume, config) for index, volume in enumerate(vmi.spec.volumes)}
    sockets = Volume(name=names.VOLUME_SHARE_SOCKETS, empty_dir=EmptyDirVolumeSource(size_limit=_SOCKETS_LIMIT))
    mount = VolumeMount(name=sockets.name, mount_path=names.PATH_SHARE_SOCKETS)
    # A tag that is named twice is one filesystem.
    tags = dict.fromkeys(each.name for each in filesystems if each.name in found)
    containers = tuple(_container(vmi, config, found[tag], mount) for tag in tags)
    return Parts(volumes=(sockets,), mounts=(mount,), containers=containers)


def _container(vmi: VirtualMachineInstance, config: TemplateConfig, wish: Wish, sockets: VolumeMount) -> Container:
    shared = _mount(wish)
    args = ["--socket", names.share_socket(wish.volume.name)]
    if shared is not None:
        args += ["--directory", shared.mount_path]
    elif wish.volume.container_path is not None:
        args += ["--directory", wish.volume.container_path.path, "--as-root", "--mounted"]
    else:
        args += ["--directory", names.PATH_SERVICE_ACCOUNT, "--as-root"]
    return Container(
        name=names.share_container(wish.volume.name),
        image=config.launcher_image,
        image_pull_policy=config.pull_policy,
        command=[PROGRAM],
        args=args,
        resources=_resources(vmi),
        volume_mounts=[sockets] if shared is None else [sockets, shared],
        termination_message_policy="FallbackToLogsOnError",
        security_context=SecurityContext(
            allow_privilege_escalation=False, capabilities=Capabilities(drop=["ALL"]), read_only_root_filesystem=True
        ),
    )


def _mount(wish: Wish) -> VolumeMount | None:
    """None: others mount it, as they do in every container of the Pod: the API server, or a webhook of the cluster."""
    source = source_of(wish.volume)
    if source not in _SHAREABLE:
        raise wish.refuse(f"a volume of the kind {source} cannot be shared as a filesystem")
    if source in _STORED and not wish.config.cluster.has("EnableVirtioFsStorageVolumes"):
        raise wish.refuse("needs the feature gate EnableVirtioFsStorageVolumes")
    parts = rendered(wish)
    if parts.devices:
        raise wish.refuse("a claim of the volume mode Block cannot be shared as a filesystem")
    for mount in parts.mounts:
        return VolumeMount(name=mount.name, mount_path=names.PATH_SHARED, read_only=mount.read_only)
    return None


def _resources(vmi: VirtualMachineInstance) -> ResourceRequirements:
    """Pages of the guest count for whoever touches them first, so virtiofsd may need as much as the guest has. A
    machine with CPUs of its own touches all of its memory at the start, and its Pod must ask for what it may get."""
    if is_dedicated(vmi):
        amounts: dict[str, str | int | float] = {"cpu": _CPU_LIMIT, "memory": format_bytes(_MEMORY_LIMIT)}
        return ResourceRequirements(requests=amounts, limits=dict(amounts))
    return ResourceRequirements(
        requests={"cpu": _CPU, "memory": format_bytes(_MEMORY)},
        limits={"cpu": _CPU_LIMIT, "memory": format_bytes(_MEMORY_LIMIT + memory.guest_memory(vmi))},
    )
