"""From a VMI and a running machine to the machine that the VMI asks for: read, compare, change."""

from __future__ import annotations

from collections.abc import Callable

from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.converge.apply import apply
from virt_launcher.converge.changes import DeviceChange, NeedsRestart
from virt_launcher.converge.difference import difference
from virt_launcher.converge.wanted import live_sources, wanted_domain, without_what_is_on_its_way
from virt_launcher.convert.context import Context
from virt_launcher.disks.held import check_held
from virt_launcher.disks.prepare import DiskPreparer, Prepared
from virt_launcher.domain.domain import from_xml
from virt_launcher.hypervisor.ports import Hypervisor

ContextOf = Callable[[VirtualMachineInstance, Prepared], Context]


def converge(
    hypervisor: Hypervisor,
    preparer: DiskPreparer,
    vmi: VirtualMachineInstance,
    context_of: ContextOf,
    read_pid: Callable[[], int | None],
) -> tuple[NeedsRestart, ...]:
    """What could not be done without a restart. Raises LauncherError for what should have worked and did not."""
    live = from_xml(hypervisor.describe())
    vmi = without_what_is_on_its_way(vmi, live)
    prepared = preparer.prepare(vmi, made=live_sources(live))
    changes = difference(wanted_domain(context_of(vmi, prepared), live), live)
    prepared.finish()

    def check(volume: str) -> None:
        source = prepared.sources.get(volume)
        if source is not None and source.identity is not None:
            check_held(read_pid(), [source.identity])

    apply(hypervisor, [change for change in changes if isinstance(change, DeviceChange)], check)
    return tuple(change for change in changes if isinstance(change, NeedsRestart))
