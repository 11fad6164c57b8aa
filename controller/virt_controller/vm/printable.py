"""printableStatus: where a VM stands, in one word. The first line of the table that holds wins. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from virt_controller.vm import facts
from virt_core.apis import names
from virt_core.apis.facts import is_final, is_terminating, run_strategy
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance

_BEFORE_RUNNING = frozenset({names.PHASE_UNSET, names.PHASE_PENDING, names.PHASE_SCHEDULING, names.PHASE_SCHEDULED})


@dataclass(frozen=True, slots=True)
class Volumes:
    """What the claims and DataVolumes of a VM say."""

    failed: bool = False
    provisioning: bool = False
    unbound: bool = False
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """A VM with all that its word depends on."""

    vm: VirtualMachine
    vmi: VirtualMachineInstance | None = None
    #: A VMI was asked for and is not to be seen yet, or the VMI's deletion was.
    starting: bool = False
    stopping: bool = False
    volumes: Volumes = Volumes()


def word(view: View) -> str:
    return next((name for name, holds in _ORDER if holds(view)), names.PRINT_UNKNOWN)


def _live(view: View) -> VirtualMachineInstance | None:
    return view.vmi if view.vmi is not None and not is_final(view.vmi) else None


def _is_stopping(view: View) -> bool:
    vmi = _live(view)
    return vmi is not None and (is_terminating(vmi) or view.stopping)


def _is_running(view: View) -> bool:
    return view.vmi is not None and view.vmi.status.phase == names.PHASE_RUNNING


def _is_starting(view: View) -> bool:
    if view.vmi is None:
        return view.starting
    return view.vmi.status.phase in _BEFORE_RUNNING


def _is_waiting_for_binding(view: View) -> bool:
    return view.volumes.unbound and (_is_starting(view) or view.vm.status.printable_status == names.PRINT_STARTING)


def _has_crashed(view: View) -> bool:
    failure = view.vm.status.start_failure
    known = run_strategy(view.vm) in facts.BACKOFF_STRATEGIES
    return _live(view) is None and known and failure is not None and failure.consecutive_fail_count > 0


def _lacks_pvc(view: View) -> bool:
    if view.vmi is None:
        return bool(view.volumes.missing) and view.starting
    return _trouble(names.CONDITION_SYNCHRONIZED, names.REASON_PVC_NOT_FOUND)(view)


def _trouble(type: str, reason: str) -> Callable[[View], bool]:
    return lambda view: view.vmi is not None and facts.has_trouble(view.vmi, type, reason)


def _is_stopped(view: View) -> bool:
    return not view.starting if view.vmi is None else is_final(view.vmi)


_ORDER: tuple[tuple[str, Callable[[View], bool]], ...] = (
    (names.PRINT_TERMINATING, lambda view: is_terminating(view.vm)),
    (names.PRINT_STOPPING, _is_stopping),
    (names.PRINT_MIGRATING, lambda view: _is_running(view) and view.vmi is not None and facts.is_migrating(view.vmi)),
    (names.PRINT_PAUSED, lambda view: _is_running(view) and view.vmi is not None and facts.is_paused(view.vmi)),
    (names.PRINT_RUNNING, _is_running),
    (names.PRINT_PVC_NOT_FOUND, _lacks_pvc),
    (names.PRINT_DATA_VOLUME_ERROR, lambda view: view.volumes.failed),
    (names.PRINT_UNSCHEDULABLE, _trouble(names.CONDITION_POD_SCHEDULED, names.REASON_UNSCHEDULABLE)),
    (names.PRINT_PROVISIONING, lambda view: view.volumes.provisioning),
    (names.PRINT_WAITING_FOR_BINDING, _is_waiting_for_binding),
    (names.PRINT_ERR_IMAGE_PULL, _trouble(names.CONDITION_SYNCHRONIZED, names.REASON_ERR_IMAGE_PULL)),
    (names.PRINT_IMAGE_PULL_BACKOFF, _trouble(names.CONDITION_SYNCHRONIZED, names.REASON_IMAGE_PULL_BACKOFF)),
    (names.PRINT_STARTING, _is_starting),
    (names.PRINT_CRASH_LOOP, _has_crashed),
    (names.PRINT_STOPPED, _is_stopped),
    (
        names.PRINT_WAITING_FOR_RECEIVER,
        lambda view: view.vmi is not None and view.vmi.status.phase == names.PHASE_WAITING_FOR_SYNC,
    ),
)
