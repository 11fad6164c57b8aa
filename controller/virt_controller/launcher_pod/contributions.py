"""What a section of the template contributes, and how contributions add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from virt_core.apis import names
from virt_core.apis.containers import Container, Probe, VolumeDevice
from virt_core.apis.podparts import ResourceClaim
from virt_core.apis.pods import ContainerPort, EnvVar, VolumeMount
from virt_core.apis.podvolumes import Volume


class UnsupportedSpecError(ValueError):
    """The VMI asks for something that no launcher Pod can give. The message names the field."""


class NotPermittedError(ValueError):
    """The VMI asks for something that the cluster's configuration does not allow now. The message names the field."""

    reason = names.REASON_FAILED_CREATE


@dataclass(frozen=True, slots=True)
class Parts:
    """A piece of a Pod. Every field adds up with that of the other sections, in their order."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    volumes: tuple[Volume, ...] = ()
    mounts: tuple[VolumeMount, ...] = ()
    devices: tuple[VolumeDevice, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    requests: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    claims: tuple[ResourceClaim, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    #: Whose token the Pod gets, if any.
    service_account: str = ""
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    #: Beside the launcher's own.
    containers: tuple[Container, ...] = ()


def combine(parts: Iterable[Parts]) -> Parts:
    total = Parts()
    for part in parts:
        total = Parts(
            labels=total.labels | part.labels,
            annotations=total.annotations | part.annotations,
            node_selector=total.node_selector | part.node_selector,
            args=total.args + part.args,
            env=total.env + part.env,
            volumes=total.volumes + part.volumes,
            mounts=total.mounts + part.mounts,
            devices=total.devices + part.devices,
            ports=total.ports + part.ports,
            requests=total.requests | part.requests,
            limits=total.limits | part.limits,
            claims=total.claims + part.claims,
            # A secret that two disks need is named once.
            pull_secrets=tuple(dict.fromkeys(total.pull_secrets + part.pull_secrets)),
            service_account=total.service_account or part.service_account,
            liveness_probe=total.liveness_probe or part.liveness_probe,
            readiness_probe=total.readiness_probe or part.readiness_probe,
            containers=total.containers + part.containers,
        )
    return total
