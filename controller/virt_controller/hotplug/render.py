"""The attachment Pod: it holds claims on the node of a launcher and does nothing else.

It has the users of the node also where each launcher has its own: virt-handler translates the owners of what it takes
from there, and the kernel does that only once.
"""

from __future__ import annotations

from collections.abc import Sequence

from virt_controller.hotplug.wanted import Storage, Wanted
from virt_controller.launcher_pod.render import END_AT_ONCE, pod_security
from virt_core.apis import names
from virt_core.apis.containers import Capabilities, Container, SecurityContext, VolumeDevice, VolumeMount
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.podparts import PersistentVolumeClaimVolumeSource, ResourceRequirements
from virt_core.apis.pods import Pod, PodSpec
from virt_core.apis.podvolumes import Volume
from virt_core.apis.scheduling import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Toleration,
)
from virt_core.apis.vmi import VirtualMachineInstance

#: The first process of a container hears no signal but those that it asks for.
WAIT = (
    *END_AT_ONCE[:-1],
    "import signal as s; s.pthread_sigmask(s.SIG_BLOCK, [s.SIGTERM]); s.sigwait([s.SIGTERM])",
)

#: Nothing of this keeps a machine's disks from where the machine is.
_TOLERATED = (
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
)
_REQUESTS: dict[str, str | int | float] = {"cpu": "10m", "memory": "8Mi"}
_LIMITS: dict[str, str | int | float] = {"cpu": "100m", "memory": "80M"}


def attachment_pod(
    vmi: VirtualMachineInstance, launcher: Pod, volumes: Sequence[Wanted], storage: Storage, *, trigger: bool = False
) -> Pod:
    """`trigger`: it only has to be the claims' first user, and ends at once."""
    container = launcher.spec.containers[0]
    return Pod(
        metadata=_metadata(vmi, launcher, trigger=trigger),
        spec=PodSpec(
            volumes=[_volume(each) for each in volumes],
            containers=[_container(container, volumes, storage, trigger=trigger)],
            restart_policy="Never",
            termination_grace_period_seconds=0,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=pod_security(),
            image_pull_secrets=launcher.spec.image_pull_secrets,
            affinity=_beside(launcher.spec.node_name),
            tolerations=_tolerations(launcher),
            priority_class_name=launcher.spec.priority_class_name,
        ),
    )


def _metadata(vmi: VirtualMachineInstance, launcher: Pod, *, trigger: bool) -> ObjectMeta:
    annotations = {
        names.ANNOTATION_OWNER_VMI_NAME: vmi.metadata.name,
        names.ANNOTATION_OWNER_VMI_UID: vmi.metadata.uid,
    }
    if trigger:
        annotations[names.ANNOTATION_EPHEMERAL_PROVISIONING] = "true"
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=launcher.metadata.name, uid=launcher.metadata.uid, controller=True
    )
    return ObjectMeta(
        generate_name=names.ATTACHMENT_PREFIX,
        namespace=vmi.metadata.namespace,
        labels={names.LABEL_APP: names.APP_ATTACHMENT},
        annotations=annotations,
        owner_references=[owner],
    )


def _volume(each: Wanted) -> Volume:
    source = PersistentVolumeClaimVolumeSource(claim_name=each.claim, read_only=each.read_only)
    return Volume(name=each.name, persistent_volume_claim=source)


def _container(launcher: Container, volumes: Sequence[Wanted], storage: Storage, *, trigger: bool) -> Container:
    blocks = [each for each in volumes if storage.is_block(each.claim)]
    return Container(
        name=names.CONTAINER_ATTACHMENT,
        image=launcher.image,
        image_pull_policy=launcher.image_pull_policy,
        command=list(END_AT_ONCE if trigger else WAIT),
        resources=ResourceRequirements(requests=dict(_REQUESTS), limits=dict(_LIMITS)),
        volume_mounts=[
            VolumeMount(name=each.name, mount_path=names.attachment_directory(each.name), read_only=each.read_only)
            for each in volumes
            if each not in blocks
        ],
        volume_devices=[
            VolumeDevice(name=each.name, device_path=names.attachment_device(each.name)) for each in blocks
        ],
        security_context=SecurityContext(
            allow_privilege_escalation=False,
            capabilities=Capabilities(drop=["ALL"]),
            read_only_root_filesystem=True,
        ),
    )


def _beside(node: str) -> Affinity:
    here = NodeSelectorRequirement(key=names.LABEL_NODE_HOSTNAME, operator="In", values=[node])
    selector = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=[here])])
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))


def _tolerations(launcher: Pod) -> list[Toleration]:
    own = [Toleration(key=key, operator="Exists", effect="NoSchedule") for key in _TOLERATED]
    found: list[Toleration] = []
    for each in [*own, *launcher.spec.tolerations]:
        if each not in found:
            found.append(each)
    return sorted(found, key=lambda each: each.key)
