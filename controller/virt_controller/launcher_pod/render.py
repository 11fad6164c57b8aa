"""Puts the sections together.

The Pod passes the `restricted` Pod Security level: no hostPath, no privilege, no capability but the one that level
allows (NET_BIND_SERVICE), nothing of the node but what extended resources hand out, and a read-only root.
"""

from __future__ import annotations

from msgspec.structs import replace

from virt_controller.launcher_pod import (
    guaranteed,
    hooks,
    hostmetrics,
    keptstate,
    networks,
    placement,
    probes,
    reservations,
    scratch,
    sections,
    shares,
    tsc,
    volumes,
)
from virt_controller.launcher_pod.contributions import Parts, combine
from virt_controller.launcher_pod.sections import GRACE_MARGIN_S, Section, TemplateConfig
from virt_core.apis import names
from virt_core.apis.facts import grace_seconds
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.podparts import LocalObjectReference, ResourceRequirements
from virt_core.apis.pods import (
    Capabilities,
    Container,
    Pod,
    PodReadinessGate,
    PodSecurityContext,
    PodSpec,
    SeccompProfile,
    SecurityContext,
)
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import UNCONFIGURED, ClusterConfig

#: What the launcher's image can run: it has no shell, and no `true`.
END_AT_ONCE = ("python3", "-I", "-S", "-c", "")

_NAME_LIMIT = 63 - len("virt-launcher--12345")

SECTIONS: tuple[Section, ...] = (
    sections.identity,
    sections.process,
    sections.job,
    sections.environment,
    scratch.scratch,
    volumes.volumes,
    volumes.kernel_boot,
    volumes.credentials,
    keptstate.kept_state,
    keptstate.machine_state,
    hostmetrics.host_metrics,
    shares.shares,
    hooks.hooks,
    sections.cpu_and_memory,
    guaranteed.huge_pages,
    guaranteed.own_cpus,
    sections.devices,
    sections.node_devices,
    reservations.reservations,
    sections.ports,
    networks.networks,
    networks.network_devices,
    networks.mesh,
    probes.probes,
    placement.placement,
    tsc.counter,
)


def render(vmi: VirtualMachineInstance, config: TemplateConfig) -> Pod:
    """Raises UnsupportedSpecError, NotPermittedError."""
    parts = combine(section(vmi, config) for section in SECTIONS)
    return Pod(metadata=_metadata(vmi, parts), spec=_spec(vmi, config, parts))


def resources(vmi: VirtualMachineInstance, config: TemplateConfig) -> ResourceRequirements:
    """CPU and memory of the Pod that a VMI of this size needs."""
    parts = combine(section(vmi, config) for section in (sections.cpu_and_memory, guaranteed.own_cpus))
    return ResourceRequirements(requests=dict(parts.requests), limits=dict(parts.limits))


def first_consumer(pod: Pod) -> Pod:
    """A Pod like the launcher's, so that it lands where that one could, which uses the claims and ends at once."""
    compute = replace(
        pod.spec.containers[0],
        command=list(END_AT_ONCE),
        args=[],
        env=[],
        ports=[],
        liveness_probe=None,
        readiness_probe=None,
    )
    annotations = pod.metadata.annotations | {names.ANNOTATION_EPHEMERAL_PROVISIONING: "true"}
    return replace(
        pod,
        metadata=replace(pod.metadata, annotations=annotations),
        spec=replace(pod.spec, containers=[compute], termination_grace_period_seconds=0),
    )


def controller_reference(vmi: VirtualMachineInstance) -> OwnerReference:
    return OwnerReference(
        api_version=names.API_VERSION,
        kind="VirtualMachineInstance",
        name=vmi.metadata.name,
        uid=vmi.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _metadata(vmi: VirtualMachineInstance, parts: Parts) -> ObjectMeta:
    return ObjectMeta(
        # Cut so that the Pod's name is still a valid host name.
        generate_name=f"virt-launcher-{vmi.metadata.name[:_NAME_LIMIT]}-",
        namespace=vmi.metadata.namespace,
        labels=parts.labels,
        annotations=parts.annotations,
        owner_references=[controller_reference(vmi)],
    )


def _spec(vmi: VirtualMachineInstance, config: TemplateConfig, parts: Parts) -> PodSpec:
    spec = vmi.spec
    return PodSpec(
        volumes=list(parts.volumes),
        containers=[_compute(config, parts), *parts.containers],
        restart_policy="Never",
        termination_grace_period_seconds=grace_seconds(vmi) + 2 * GRACE_MARGIN_S,
        dns_policy=spec.dns_policy,
        dns_config=spec.dns_config,
        node_selector=parts.node_selector,
        service_account_name=spec.service_account_name or parts.service_account,
        # A VM's process has no access to the API; only a guest that is to have a token gets one.
        automount_service_account_token=bool(parts.service_account),
        security_context=pod_security(config.cluster),
        image_pull_secrets=[LocalObjectReference(name=name) for name in parts.pull_secrets],
        hostname=(spec.hostname or vmi.metadata.name).replace(".", "-")[:63].rstrip("-"),
        subdomain=spec.subdomain,
        affinity=reservations.apart(placement.affinity(vmi, config, tsc.reach(vmi, config)), vmi, config),
        scheduler_name=spec.scheduler_name,
        tolerations=spec.tolerations,
        priority_class_name=spec.priority_class_name,
        readiness_gates=[PodReadinessGate(names.CONDITION_POD_UNPAUSED)],
        enable_service_links=False,
        topology_spread_constraints=spec.topology_spread_constraints,
        # Those that the user declared, also if no device of the machine uses them: its Pod waits for all.
        resource_claims=spec.resource_claims,
        host_users=False if config.user_namespaces else None,
    )


def pod_security(cluster: ClusterConfig = UNCONFIGURED) -> PodSecurityContext:
    return PodSecurityContext(
        run_as_user=names.LAUNCHER_UID,
        run_as_group=names.LAUNCHER_GID,
        run_as_non_root=True,
        fs_group=names.LAUNCHER_GID,
        seccomp_profile=_system_calls(cluster),
    )


def _system_calls(cluster: ClusterConfig) -> SeccompProfile:
    """That of the runtime, unless the cluster names one that its nodes have."""
    if cluster.seccomp_profile:
        return SeccompProfile(type="Localhost", localhost_profile=cluster.seccomp_profile)
    return SeccompProfile(type="RuntimeDefault")


def _compute(config: TemplateConfig, parts: Parts) -> Container:
    return Container(
        name=names.CONTAINER_COMPUTE,
        image=config.launcher_image,
        image_pull_policy=config.pull_policy,
        command=["virt-launcher"],
        args=list(parts.args),
        env=list(parts.env),
        ports=list(parts.ports),
        resources=ResourceRequirements(
            requests=dict(parts.requests), limits=dict(parts.limits), claims=list(parts.claims)
        ),
        volume_mounts=list(parts.mounts),
        volume_devices=list(parts.devices),
        liveness_probe=parts.liveness_probe,
        readiness_probe=parts.readiness_probe,
        # The last words of a launcher that died are the best reason we can give.
        termination_message_policy="FallbackToLogsOnError",
        security_context=SecurityContext(
            allow_privilege_escalation=False,
            capabilities=Capabilities(add=["NET_BIND_SERVICE"], drop=["ALL"]),
            read_only_root_filesystem=True,
        ),
    )
