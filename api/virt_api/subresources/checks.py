"""When a subresource makes sense: one small function each, raising what the caller shall see."""

from __future__ import annotations

from virt_api.problems import Problem
from virt_core.apis import names
from virt_core.apis.facts import is_final
from virt_core.apis.vmi import VirtualMachineInstance

#: Texts that clients compare.
NO_SERIAL_CONSOLE = "No serial consoles are present."
DEAF_GUEST = "VMI neither have the agent connected nor the ACPI feature enabled"


def has_condition(vmi: VirtualMachineInstance, type_: str) -> bool:
    return any(condition.type == type_ and condition.status == names.TRUE for condition in vmi.status.conditions)


def running(vmi: VirtualMachineInstance) -> None:
    if vmi.status.phase != names.PHASE_RUNNING:
        raise Problem(409, f"VMI {vmi.metadata.name} is not running: its phase is {vmi.status.phase or 'unset'}")


def console(vmi: VirtualMachineInstance) -> None:
    """400 means `not yet`, and clients try again; 409 means `no more`."""
    if vmi.spec.domain.devices.autoattach_serial_console is False:
        raise Problem(400, NO_SERIAL_CONSOLE)
    if is_final(vmi):
        raise Problem(409, f"VMI {vmi.metadata.name} has ended: its phase is {vmi.status.phase}")
    started(vmi)


def vnc(vmi: VirtualMachineInstance) -> None:
    if vmi.spec.domain.devices.autoattach_graphics_device is False:
        raise Problem(400, f"VMI {vmi.metadata.name} has no graphics device: autoattachGraphicsDevice is false")
    started(vmi)


def usbredir(vmi: VirtualMachineInstance) -> None:
    if vmi.spec.domain.devices.client_passthrough is None or vmi.spec.architecture == "s390x":
        raise Problem(409, f"VMI {vmi.metadata.name} takes no USB devices: clientPassthrough is not set")
    started(vmi)


def vsock(vmi: VirtualMachineInstance) -> None:
    if not vmi.spec.domain.devices.autoattach_vsock or not vmi.status.vsock_cid:
        raise Problem(400, f"VMI {vmi.metadata.name} has no vsock: autoattachVSOCK is not set")
    started(vmi)


def port_forward(vmi: VirtualMachineInstance) -> None:
    if has_condition(vmi, names.CONDITION_PAUSED):
        raise Problem(409, f"VMI {vmi.metadata.name} is paused")
    started(vmi)
    if not vmi.status.interfaces:
        raise Problem(400, f"VMI {vmi.metadata.name} has no network interface")


def soft_reboot(vmi: VirtualMachineInstance) -> None:
    running(vmi)
    if has_condition(vmi, names.CONDITION_PAUSED):
        raise Problem(409, f"VMI {vmi.metadata.name} is paused")
    features = vmi.spec.domain.features
    deaf = features is not None and features.acpi is not None and features.acpi.enabled is False
    if deaf and not has_condition(vmi, names.CONDITION_AGENT_CONNECTED):
        raise Problem(409, DEAF_GUEST)


def pause(vmi: VirtualMachineInstance) -> None:
    running(vmi)
    probe = vmi.spec.liveness_probe
    if probe is not None and probe.guest_agent_ping is None:
        raise Problem(403, f"VMI {vmi.metadata.name} has a livenessProbe, which would fail while it is paused")
    if has_condition(vmi, names.CONDITION_PAUSED):
        raise Problem(409, f"VMI {vmi.metadata.name} is already paused")


def unpause(vmi: VirtualMachineInstance) -> None:
    running(vmi)
    if not has_condition(vmi, names.CONDITION_PAUSED):
        raise Problem(409, f"VMI {vmi.metadata.name} is not paused")


def guest_agent(vmi: VirtualMachineInstance) -> None:
    running(vmi)
    if not has_condition(vmi, names.CONDITION_AGENT_CONNECTED):
        raise Problem(409, f"VMI {vmi.metadata.name} has no connected guest agent")


def started(vmi: VirtualMachineInstance) -> None:
    if vmi.status.phase != names.PHASE_RUNNING:
        raise Problem(400, f"VMI {vmi.metadata.name} is not running yet: its phase is {vmi.status.phase or 'unset'}")
