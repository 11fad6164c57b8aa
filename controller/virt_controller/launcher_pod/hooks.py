"""Hook sidecars: containers of the VMI's author, or of a network binding plugin of the cluster's, that may change the
machine before it starts.

Each has a socket directory of its own, which the launcher sees by the container's name, perhaps a claim that both use,
and nothing else of the launcher's. One without an image is our own shim, in the launcher's image, with a script out of
a ConfigMap.
"""

from __future__ import annotations

import posixpath

from virt_controller.launcher_pod.contributions import Parts, UnsupportedSpecError, combine
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import bindingplugins, names
from virt_core.apis.hooksidecars import HookSidecar, sidecars
from virt_core.apis.owncpus import is_dedicated
from virt_core.apis.podparts import PersistentVolumeClaimVolumeSource, ResourceRequirements
from virt_core.apis.pods import Capabilities, Container, SecurityContext, VolumeMount
from virt_core.apis.podvolumes import ConfigMapVolumeSource, EmptyDirVolumeSource, KeyToPath, Volume
from virt_core.apis.quantity import Quantity
from virt_core.apis.vmi import VirtualMachineInstance

SHIM = "sidecar-shim"
_SOCKETS_LIMIT = "1Mi"
_EXECUTABLE = 0o755
_GUARANTEED: dict[str, Quantity] = {"cpu": "200m", "memory": "64M"}
_FIELD = f"metadata.annotations[{names.ANNOTATION_HOOK_SIDECARS}]"


def hooks(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    """Asked again here: the gate may have closed since the VMI was accepted."""
    try:
        wanted = sidecars(vmi.metadata.annotations)
    except ValueError as error:
        raise UnsupportedSpecError(f"{_FIELD} {error}") from error
    if wanted and not config.cluster.has("Sidecar"):
        raise UnsupportedSpecError(f"{_FIELD} needs the feature gate Sidecar")
    plugins = _of_plugins(vmi, config)
    wanted = [*wanted, *plugins]
    if not wanted:
        return Parts()
    of_plugins = ("--plugin-sidecars", str(len(plugins))) if plugins else ()
    count = Parts(args=("--hook-sidecars", str(len(wanted)), *of_plugins))
    return combine([count, *(_sidecar(vmi, config, index, each) for index, each in enumerate(wanted))])


def _of_plugins(vmi: VirtualMachineInstance, config: TemplateConfig) -> list[HookSidecar]:
    """One for each plugin, however many NICs it binds: it gets the whole machine to see. No gate: it is the cluster's
    own configuration that names it."""
    plugins = bindingplugins.used(vmi.spec, config.cluster.network_bindings).values()
    policy = config.pull_policy
    return [HookSidecar(image=each.sidecar_image, image_pull_policy=policy) for each in plugins if each.sidecar_image]


def _sidecar(vmi: VirtualMachineInstance, config: TemplateConfig, index: int, sidecar: HookSidecar) -> Parts:
    name = names.hook_container(index)
    sockets = Volume(name=f"{name}-sockets", empty_dir=EmptyDirVolumeSource(size_limit=_SOCKETS_LIMIT))
    script, claim = _script(index, sidecar), _claim(index, sidecar)
    container = Container(
        name=name,
        image=sidecar.image or config.launcher_image,
        image_pull_policy=sidecar.image_pull_policy or ("" if sidecar.image else config.pull_policy),
        command=sidecar.command or ([] if sidecar.image else [SHIM]),
        args=sidecar.args,
        resources=ResourceRequirements(requests=_GUARANTEED, limits=_GUARANTEED) if is_dedicated(vmi) else None,
        volume_mounts=[VolumeMount(name=sockets.name, mount_path=names.PATH_HOOKS), *script.mounts, *claim.mounts],
        termination_message_policy="FallbackToLogsOnError",
        security_context=SecurityContext(
            allow_privilege_escalation=False,
            capabilities=Capabilities(drop=["ALL"]),
            read_only_root_filesystem=None if sidecar.image else True,
        ),
    )
    mounts = [VolumeMount(name=sockets.name, mount_path=names.hook_sockets(index))]
    if sidecar.pvc is not None and (place := sidecar.pvc.shared_compute_path):
        mounts.append(VolumeMount(name=claim.volumes[0].name, mount_path=place))
    volumes = (sockets, *script.volumes, *claim.volumes)
    return Parts(volumes=volumes, mounts=tuple(mounts), containers=(container,))


def _claim(index: int, sidecar: HookSidecar) -> Parts:
    if sidecar.pvc is None:
        return Parts()
    source = PersistentVolumeClaimVolumeSource(claim_name=sidecar.pvc.name)
    volume = Volume(name=f"{names.hook_container(index)}-claim", persistent_volume_claim=source)
    return Parts(volumes=(volume,), mounts=(VolumeMount(name=volume.name, mount_path=sidecar.pvc.volume_path),))


def _script(index: int, sidecar: HookSidecar) -> Parts:
    """Where the author wants it; in our own image, of which nothing can be written, where the shim looks for it."""
    script = sidecar.config_map
    if script is None:
        return Parts()
    directory, file = posixpath.split(script.hook_path)
    items = [KeyToPath(key=script.key, path=file)]
    source = ConfigMapVolumeSource(name=script.name, items=items, default_mode=_EXECUTABLE)
    volume = Volume(name=f"{names.hook_container(index)}-script", config_map=source)
    if sidecar.image:
        mount = VolumeMount(name=volume.name, mount_path=f"{directory}/{file}", sub_path=file, read_only=True)
    else:
        mount = VolumeMount(name=volume.name, mount_path=names.PATH_HOOK_SCRIPTS, read_only=True)
    return Parts(volumes=(volume,), mounts=(mount,))
