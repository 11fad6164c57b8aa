"""The guest's probes, as probes of the launcher's container.

What asks by the network asks the Pod's address, where the guest's ports are. What asks the guest itself goes by
`virt-probe` in the container, which the launcher answers by the guest agent.
"""

from __future__ import annotations

from virt_controller.launcher_pod.contributions import Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import containers
from virt_core.apis.guestprobes import by_agent
from virt_core.apis.podparts import ExecAction
from virt_core.apis.vmi import Probe, VirtualMachineInstance

PROGRAM = "virt-probe"
#: A guest is asked whether it lives only when its machine had this long to start.
LIVENESS_DELAY_S = 10
#: `virt-probe` itself gives up first, so that its sentence is heard.
WRAPPED_S = 1


def probes(vmi: VirtualMachineInstance, _config: TemplateConfig) -> Parts:
    spec = vmi.spec
    liveness = _rendered(spec.liveness_probe, LIVENESS_DELAY_S) if spec.liveness_probe is not None else None
    readiness = _rendered(spec.readiness_probe, 0) if spec.readiness_probe is not None else None
    return Parts(liveness_probe=liveness, readiness_probe=readiness)


def _rendered(probe: Probe, delay_s: int) -> containers.Probe:
    wrapped = by_agent(probe)
    return containers.Probe(
        exec_=ExecAction(command=_command(probe)) if wrapped else None,
        http_get=probe.http_get,
        tcp_socket=probe.tcp_socket,
        initial_delay_seconds=probe.initial_delay_seconds + delay_s,
        timeout_seconds=_timeout_s(probe) + (WRAPPED_S if wrapped else 0),
        period_seconds=probe.period_seconds,
        success_threshold=probe.success_threshold,
        failure_threshold=probe.failure_threshold,
    )


def _command(probe: Probe) -> list[str]:
    base = [PROGRAM, "--timeoutSeconds", str(_timeout_s(probe))]
    if probe.exec_ is None:
        return [*base, "--guestAgentPing"]
    command, *arguments = probe.exec_.command
    return [*base, "--command", command, "--", *arguments]


def _timeout_s(probe: Probe) -> int:
    return max(probe.timeout_seconds, 1)
