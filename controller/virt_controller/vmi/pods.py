"""What the state of a launcher Pod says, in the words of the VMI's owner. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from virt_core.apis import names
from virt_core.apis.facts import is_terminating
from virt_core.apis.pods import ContainerState, ContainerStateTerminated, Pod, PodCondition
from virt_core.apis.quantity import Quantity, format_bytes, parse_int
from virt_core.apis.vmi import VirtualMachineInstance

#: A container that merely waits for its turn.
_NORMAL_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})
_IMAGE_REASONS = frozenset(
    {
        names.REASON_ERR_IMAGE_PULL,
        names.REASON_IMAGE_PULL_BACKOFF,
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
_REFUSALS = frozenset({"UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError"})
_MAX_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something does not go on: a CamelCase word and a sentence."""

    reason: str
    message: str


def compute_state(pod: Pod) -> ContainerState:
    return _states(pod).get(names.CONTAINER_COMPUTE, ContainerState())


def _states(pod: Pod) -> dict[str, ContainerState]:
    return {status.name: status.state for status in pod.status.container_statuses if status.state is not None}


def memory_overhead(pod: Pod) -> Quantity | None:
    """What was booked beside the guest's memory when it was made."""
    told = pod.metadata.annotations.get(names.ANNOTATION_MEMORY_OVERHEAD, "")
    return format_bytes(int(told)) if told.isdecimal() else None


def has_device(pod: Pod, resource: str) -> bool:
    """Whether its launcher was given one."""
    compute = next((each for each in pod.spec.containers if each.name == names.CONTAINER_COMPUTE), None)
    limits = compute.resources.limits if compute is not None and compute.resources is not None else {}
    return parse_int(limits.get(resource, 0)) > 0


def still_runs(pod: Pod) -> bool:
    """Whether anything of it does: what serves the machine may not have seen its end."""
    others = (state.running for name, state in _states(pod).items() if name != names.CONTAINER_COMPUTE)
    return not is_finished(pod) or (pod.status.phase == "Running" and any(others))


def lost_share(pod: Pod) -> Trouble | None:
    """The end of a virtiofsd before its machine's: the guest waits for its files from then on."""
    for name, state in _states(pod).items():
        ended = state.terminated
        if name.startswith(names.CONTAINER_PREFIX_SHARE) and ended is not None and (ended.exit_code or ended.signal):
            return Trouble(names.FAILED_SHARE, f"the guest's filesystem is not served: {_exit_words(name, ended)}")
    return None


def is_finished(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed") or compute_state(pod).terminated is not None


def was_refused(pod: Pod) -> bool:
    """The kubelet did not take it, for want of something that the scheduler thought there was: nothing of it ran. A
    kubelet that has just started does not know its devices for a moment."""
    reason = pod.status.reason or ""
    refused = reason in _REFUSALS or reason.startswith("OutOf")
    return refused and pod.status.phase == "Failed" and not _ever_ran(pod)


def _ever_ran(pod: Pod) -> bool:
    """A kubelet also makes up an end for a container that it cannot find; such an end has no beginning."""
    states = [status.state for status in pod.status.container_statuses if status.state is not None]
    return any(state.running or (state.terminated and state.terminated.started_at) for state in states)


def is_ready_for_node(pod: Pod) -> bool:
    """The launcher runs, so its node can take over."""
    running = pod.status.phase == "Running" and compute_state(pod).running is not None
    return running and bool(pod.spec.node_name) and not is_terminating(pod)


def condition(pod: Pod, type: str) -> PodCondition | None:
    return next((c for c in pod.status.conditions if c.type == type), None)


def unschedulable(pod: Pod) -> Trouble | None:
    scheduled = condition(pod, names.CONDITION_POD_SCHEDULED)
    if scheduled is None or scheduled.status != names.FALSE:
        return None
    return Trouble(scheduled.reason or names.REASON_UNSCHEDULABLE, scheduled.message + _needed_label(pod))


def _needed_label(pod: Pod) -> str:
    """A scheduler only says that labels did not match, and the field that this one follows from speaks of none."""
    if names.LABEL_CPU_MANAGER_NEW not in pod.spec.node_selector:
        return ""
    return (
        f" Dedicated CPUs need a node with the label {names.LABEL_CPU_MANAGER_NEW}=true:"
        " its kubelet has the static CPU manager policy, and the feature gate CPUManager is on."
    )


def waiting_trouble(pod: Pod, vmi: VirtualMachineInstance) -> Trouble | None:
    """Why the launcher's container does not start; None while all goes its way."""
    waits = {name: state.waiting for name, state in _states(pod).items() if state.waiting is not None}
    for name, waiting in waits.items():
        if waiting.reason in _NORMAL_WAITS:
            continue
        if waiting.reason in _IMAGE_REASONS:
            return Trouble(
                waiting.reason, f"{_image_words(pod, vmi, name, waiting.message)}: {_short(waiting.message)}"
            )
        whose = "the launcher's container" if name == names.CONTAINER_COMPUTE else f"the container {name}"
        return Trouble(waiting.reason, f"{whose} does not start: {_short(waiting.message)}")
    return None


def _image_words(pod: Pod, vmi: VirtualMachineInstance, container: str, message: str) -> str:
    """Which image it is about. The node only writes a text, so we look which of our images it mentions."""
    for volume in pod.spec.volumes:
        if volume.image is None or not volume.image.reference or volume.image.reference not in message:
            continue
        return f'the image "{volume.image.reference}" of {_volume_words(volume.name, vmi)} is not available'
    image = next((c.image for c in pod.spec.containers if c.name == container), "")
    whose = (
        "the launcher's image" if container == names.CONTAINER_COMPUTE else f"the image of the container {container}"
    )
    return f'{whose} "{image}" is not available'


def _volume_words(pod_volume: str, vmi: VirtualMachineInstance) -> str:
    if pod_volume == names.VOLUME_KERNEL_BOOT:
        return "spec.domain.firmware.kernelBoot.container"
    for index, volume in enumerate(vmi.spec.volumes):
        if names.container_disk_volume(index) == pod_volume:
            return f'volume "{volume.name}"'
    return f'volume "{pod_volume}"'


def end_words(pod: Pod | None) -> str:
    """How the launcher Pod ended, as truly as its status tells."""
    if pod is None:
        return "the launcher Pod is gone"
    if terminated := compute_state(pod).terminated:
        return f"the launcher Pod ended: {_exit_words(names.CONTAINER_COMPUTE, terminated)}"
    if pod.status.phase in ("Succeeded", "Failed"):
        words = pod.status.message or pod.status.reason or f"its phase is {pod.status.phase}"
        return f"the launcher Pod ended: {_short(words)}"
    return "the launcher Pod is being deleted"


def _exit_words(container: str, terminated: ContainerStateTerminated) -> str:
    how = f"the container {container} exited with code {terminated.exit_code}"
    if terminated.signal:
        how = f"the container {container} was killed by signal {terminated.signal}"
    if terminated.reason and terminated.reason not in ("Error", "Completed"):
        how += f" ({terminated.reason})"
    return f"{how}: {_short(terminated.message)}" if terminated.message else how


def _short(text: str) -> str:
    """The end of a long text: that is where the reason stands."""
    text = text.strip()
    return text if len(text) <= _MAX_MESSAGE else "…" + text[-_MAX_MESSAGE:]
