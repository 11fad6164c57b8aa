"""The importer Pod: the claim, what the source needs, no account, no right."""

from __future__ import annotations

from dataclasses import dataclass

from virt_controller.datavolume.plan import image_of
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.launcher_pod.render import pod_security
from virt_core.apis import importplan, names
from virt_core.apis.base import encode
from virt_core.apis.containers import (
    Capabilities,
    Container,
    ContainerPort,
    EnvVar,
    SecurityContext,
    VolumeDevice,
    VolumeMount,
)
from virt_core.apis.datavolume import DataVolume, DataVolumeSource, DataVolumeSpec
from virt_core.apis.importplan import ImportPlan
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podparts import PersistentVolumeClaimVolumeSource, ResourceRequirements
from virt_core.apis.pods import Pod, PodSpec
from virt_core.apis.podvolumes import ConfigMapVolumeSource, ImageVolumeSource, SecretVolumeSource, Volume
from virt_core.apis.registry import owner_reference

_CLAIM = "claim"
#: A stream needs little; xz and zstd may ask for a window of 128 MiB.
_REQUESTS: dict[str, str | int | float] = {"cpu": "100m", "memory": "64Mi"}
_LIMITS: dict[str, str | int | float] = {"memory": "512Mi"}


@dataclass(frozen=True, slots=True)
class _Mounted:
    """A volume, and where the importer looks for it."""

    volume: Volume
    path: str


def importer_pod(volume: DataVolume, spec: DataVolumeSpec, plan: ImportPlan, config: TemplateConfig) -> Pod:
    more = [*_mounted(spec), *_source(spec, plan)]
    claim = Volume(
        name=_CLAIM, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=volume.metadata.name)
    )
    return Pod(
        metadata=ObjectMeta(
            name=importplan.pod_name(volume.metadata.name),
            namespace=volume.metadata.namespace,
            labels={names.LABEL_APP: names.APP_IMPORTER},
            owner_references=[owner_reference(volume)],
        ),
        spec=PodSpec(
            volumes=[claim, *(each.volume for each in more)],
            containers=[_container(plan, more, config)],
            restart_policy="Never",
            termination_grace_period_seconds=5,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=pod_security(),
            priority_class_name=spec.priority_class_name,
            host_users=False if config.user_namespaces else None,
        ),
    )


def _container(plan: ImportPlan, more: list[_Mounted], config: TemplateConfig) -> Container:
    devices = [each for each in more if each.path.startswith("/dev/")]
    mounts = [
        VolumeMount(name=each.volume.name, mount_path=each.path, read_only=True) for each in more if each not in devices
    ]
    if not plan.block:
        mounts.append(VolumeMount(name=_CLAIM, mount_path=importplan.DIRECTORY))
    return Container(
        name="importer",
        image=config.launcher_image,
        image_pull_policy=config.pull_policy,
        command=[importplan.PROGRAM],
        env=[EnvVar(name=importplan.PLAN, value=encode(plan).decode())],
        ports=[ContainerPort(name="progress", container_port=importplan.PORT, protocol="TCP")],
        resources=ResourceRequirements(requests=dict(_REQUESTS), limits=dict(_LIMITS)),
        volume_mounts=mounts,
        volume_devices=[
            *(VolumeDevice(name=each.volume.name, device_path=each.path) for each in devices),
            *([VolumeDevice(name=_CLAIM, device_path=importplan.DEVICE)] if plan.block else []),
        ],
        termination_message_policy="File",
        security_context=SecurityContext(
            allow_privilege_escalation=False, capabilities=Capabilities(drop=["ALL"]), read_only_root_filesystem=True
        ),
    )


def _source(spec: DataVolumeSpec, plan: ImportPlan) -> list[_Mounted]:
    """The image or the claim that is copied."""
    if plan.source == importplan.IMAGE:
        image = ImageVolumeSource(reference=image_of(spec))
        return [_Mounted(Volume(name="source", image=image), importplan.SOURCE_DIRECTORY)]
    copied = spec.source.pvc if spec.source is not None else None
    if copied is None:
        return []
    claim = PersistentVolumeClaimVolumeSource(claim_name=copied.name, read_only=True)
    path = importplan.SOURCE_DEVICE if plan.source_block else importplan.SOURCE_DIRECTORY
    return [_Mounted(Volume(name="source", persistent_volume_claim=claim), path)]


def _mounted(spec: DataVolumeSpec) -> list[_Mounted]:
    source = spec.source or DataVolumeSource()
    named = source.http or source.registry
    if named is None:
        return []
    found = []
    if named.secret_ref:
        found.append(_secret("credentials", named.secret_ref, importplan.CREDENTIALS))
    if named.cert_config_map:
        certificates = ConfigMapVolumeSource(name=named.cert_config_map)
        found.append(_Mounted(Volume(name="certificates", config_map=certificates), importplan.CERTIFICATES))
    for number, name in enumerate(source.http.secret_extra_headers if source.http is not None else ()):
        found.append(_secret(f"headers-{number}", name, f"{importplan.SECRET_HEADERS}/{number}"))
    return found


def _secret(volume: str, name: str, path: str) -> _Mounted:
    return _Mounted(Volume(name=volume, secret=SecretVolumeSource(secret_name=name, default_mode=0o440)), path)
