"""The exporter Pod, its Service and its Secrets. The Pod has no account and no right, and may only read."""

from __future__ import annotations

import hashlib
import secrets
import string
from collections.abc import Sequence

from msgspec.structs import replace

from virt_controller.export import model
from virt_controller.export.model import Exported
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.launcher_pod.render import pod_security
from virt_core.apis import exportplan, names
from virt_core.apis.base import encode
from virt_core.apis.config import Secret
from virt_core.apis.containers import (
    Capabilities,
    Container,
    ContainerPort,
    EnvVar,
    Probe,
    SecurityContext,
    VolumeDevice,
    VolumeMount,
)
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.exportplan import ExportPlan, ExportVolume
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.podparts import HTTPGetAction, PersistentVolumeClaimVolumeSource, ResourceRequirements
from virt_core.apis.pods import Pod, PodSpec
from virt_core.apis.podvolumes import SecretVolumeSource, Volume
from virt_core.apis.registry import owner_reference
from virt_core.apis.services import Service, ServicePort, ServiceSpec
from virt_core.apis.vm import VirtualMachine

_TLS, _TOKEN = "certificates", "token"
_REQUESTS: dict[str, str | int | float] = {"cpu": "100m", "memory": "200Mi"}
_LIMITS: dict[str, str | int | float] = {"cpu": "1", "memory": "1024Mi"}
_NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration",)
_ALPHABET = string.ascii_letters + string.digits
_TOKEN_LENGTH, _NAME_LENGTH = 20, 10


def token_name(export: VirtualMachineExport) -> str:
    return export.spec.token_secret_ref or exportplan.short_name("export-token", export.metadata.name)


def plan_id(volumes: Sequence[Exported], vm: VirtualMachine | None) -> str:
    """What a Pod was made to serve; another one needs another Pod. Whether the VM is to run is no part of it."""
    parts = [f"{each.name} {each.claim.metadata.uid} {each.block} {each.disk}".encode() for each in volumes]
    if vm is not None:
        parts += [vm.metadata.uid.encode(), encode(replace(vm.spec, run_strategy=None, running=None))]
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:16]


def exporter_service(export: VirtualMachineExport) -> Service:
    name = export.metadata.name
    copied = {key: value for key, value in export.metadata.annotations.items() if key not in _NOT_COPIED}
    return Service(
        metadata=_meta(export, exportplan.service_name(name), annotations=copied),
        spec=ServiceSpec(
            ports=[
                ServicePort(
                    name=exportplan.PORT_NAME,
                    port=exportplan.SERVICE_PORT,
                    target_port=exportplan.PORT,
                    protocol="TCP",
                )
            ],
            selector={names.LABEL_EXPORT_SERVICE: _selected(name)},
        ),
    )


def exporter_pod(
    export: VirtualMachineExport,
    volumes: Sequence[Exported],
    vm: VirtualMachine | None,
    config: TemplateConfig,
    deadline: str,
) -> Pod:
    name = export.metadata.name
    meta = _meta(export, exportplan.pod_name(name), annotations={model.KEY_PLAN: plan_id(volumes, vm)})
    meta.labels[names.LABEL_EXPORT_SERVICE] = _selected(name)
    secret = f"secret-{''.join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(_NAME_LENGTH))}"
    plan = ExportPlan(
        name=name,
        namespace=export.metadata.namespace,
        volumes=[_planned(number, each) for number, each in enumerate(volumes)],
        deadline=deadline,
    )
    return Pod(
        metadata=meta,
        spec=PodSpec(
            volumes=[
                _secret(_TLS, secret),
                _secret(_TOKEN, token_name(export)),
                *(_claim(number, each) for number, each in enumerate(volumes)),
            ],
            containers=[_container(plan, config)],
            restart_policy="Never",
            termination_grace_period_seconds=5,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=pod_security(),
            host_users=False if config.user_namespaces else None,
        ),
    )


def certificate_secret_of(pod: Pod) -> str:
    """The Secret that the Pod waits for."""
    found = [v.secret.secret_name for v in pod.spec.volumes if v.name == _TLS and v.secret is not None]
    return found[0] if found else ""


def certificate_secret(pod: Pod, files: dict[str, str]) -> Secret:
    """It goes with the Pod."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
    return Secret(
        metadata=ObjectMeta(
            name=certificate_secret_of(pod), namespace=pod.metadata.namespace, owner_references=[owner]
        ),
        immutable=True,
        type="kubernetes.io/tls",
        string_data=files,
    )


def token_secret(export: VirtualMachineExport) -> Secret:
    token = "".join(secrets.choice(_ALPHABET) for _ in range(_TOKEN_LENGTH))
    return Secret(metadata=_meta(export, token_name(export)), type="Opaque", string_data={exportplan.TOKEN_KEY: token})


def _meta(export: VirtualMachineExport, name: str, annotations: dict[str, str] | None = None) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=export.metadata.namespace,
        labels=dict(export.metadata.labels) | {names.LABEL_APP: names.APP_EXPORTER},
        annotations=annotations or {},
        owner_references=[owner_reference(export)],
    )


def _selected(export: str) -> str:
    return export if len(export) <= 63 else exportplan.short_name("export", export)


def _planned(number: int, each: Exported) -> ExportVolume:
    root = exportplan.DEVICES if each.block else exportplan.DIRECTORIES
    return ExportVolume(name=each.name, path=f"{root}/{number}", block=each.block, disk=each.disk)


def _claim(number: int, each: Exported) -> Volume:
    source = PersistentVolumeClaimVolumeSource(claim_name=each.claim.metadata.name, read_only=True)
    return Volume(name=f"volume-{number}", persistent_volume_claim=source)


def _secret(volume: str, name: str) -> Volume:
    return Volume(name=volume, secret=SecretVolumeSource(secret_name=name, default_mode=0o440))


def _container(plan: ExportPlan, config: TemplateConfig) -> Container:
    mounts = [
        VolumeMount(name=_TLS, mount_path=exportplan.TLS_DIRECTORY, read_only=True),
        VolumeMount(name=_TOKEN, mount_path=exportplan.TOKEN_DIRECTORY, read_only=True),
    ]
    numbered = list(enumerate(plan.volumes))
    mounts += [VolumeMount(name=f"volume-{n}", mount_path=v.path, read_only=True) for n, v in numbered if not v.block]
    return Container(
        name="exporter",
        image=config.launcher_image,
        image_pull_policy=config.pull_policy,
        command=[exportplan.PROGRAM],
        env=[EnvVar(name=exportplan.PLAN, value=encode(plan).decode())],
        ports=[ContainerPort(name=exportplan.PORT_NAME, container_port=exportplan.PORT, protocol="TCP")],
        resources=ResourceRequirements(requests=dict(_REQUESTS), limits=dict(_LIMITS)),
        volume_mounts=mounts,
        volume_devices=[VolumeDevice(name=f"volume-{n}", device_path=v.path) for n, v in numbered if v.block],
        readiness_probe=Probe(
            http_get=HTTPGetAction(path=exportplan.PATH_READY, port=exportplan.PORT, scheme="HTTPS"),
            initial_delay_seconds=1,
            timeout_seconds=2,
            period_seconds=5,
        ),
        security_context=SecurityContext(
            allow_privilege_escalation=False, capabilities=Capabilities(drop=["ALL"]), read_only_root_filesystem=True
        ),
    )
