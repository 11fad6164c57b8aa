"""Makes the changes of a difference, one after the other. What fails is named, and does not hold up the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from xml.etree import ElementTree as ET

from virt_core.runtime.logs import get_logger
from virt_launcher.converge.changes import Act, DeviceChange, MoreProcessors
from virt_launcher.domain.codec import to_element
from virt_launcher.domain.disks import Disk
from virt_launcher.errors import InvalidVMIError, LauncherError, NoMachineError, UnavailableError
from virt_launcher.hypervisor.ports import Hypervisor

log = get_logger(__name__)

#: How long a guest may take to let a device go. A later sync tries again.
DETACH_DEADLINE_S = 10.0

#: Looks whether the machine holds the very file that was checked for a disk; raises LauncherError.
CheckHeld = Callable[[str], None]


def apply(hypervisor: Hypervisor, changes: Iterable[DeviceChange | MoreProcessors], check_held: CheckHeld) -> None:
    """Raises LauncherError with one sentence for each part that could not be changed."""
    failures: list[str] = []
    for change in changes:
        try:
            _make(hypervisor, change, check_held)
        except (UnavailableError, NoMachineError):
            raise  # Nothing that follows could work either.
        except LauncherError as error:
            log.warning("a device was not changed", device=change.what, act=change.act.value, error=str(error))
            failures.append(f"{change.what} was not {change.act.value}: {error}")
        else:
            log.info("a device was changed", device=change.what, act=change.act.value)
    if failures:
        raise LauncherError("; ".join(failures))


def _make(hypervisor: Hypervisor, change: DeviceChange | MoreProcessors, check_held: CheckHeld) -> None:
    if isinstance(change, MoreProcessors):
        hypervisor.set_processors(change.count)
        return
    if change.act is Act.DETACH:
        hypervisor.detach_device(change.device.alias, DETACH_DEADLINE_S)
        return
    command = hypervisor.attach_device if change.act is Act.ATTACH else hypervisor.update_device
    command(device_xml(change))
    if isinstance(change.device, Disk) and (change.device.source_file or change.device.source_dev):
        try:
            check_held(change.name)
        except InvalidVMIError:
            _take_back(hypervisor, change)
            raise


def _take_back(hypervisor: Hypervisor, change: DeviceChange) -> None:
    """A disk that is not the one that was checked."""
    if change.act is Act.UPDATE:
        empty = replace(change.device, source_file=None, source_dev=None)
        hypervisor.update_device(device_xml(replace(change, device=empty)))
    else:
        hypervisor.detach_device(change.device.alias, DETACH_DEADLINE_S)


def device_xml(change: DeviceChange) -> str:
    return ET.tostring(to_element(change.device, change.tag), encoding="unicode")
