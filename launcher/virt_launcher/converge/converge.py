"""From a VMI and a running machine to the machine that the VMI asks for: read, compare, change."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from virt_core.apis.coming import without_coming
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.converge.apply import apply
from virt_launcher.converge.changes import NeedsRestart
from virt_launcher.converge.difference import difference
from virt_launcher.converge.growth import grow
from virt_launcher.converge.wanted import live_sources, wanted_domain
from virt_launcher.convert.context import Context
from virt_launcher.disks.held import check_held
from virt_launcher.disks.prepare import DiskPreparer, Prepared
from virt_launcher.domain.domain import Domain, from_xml
from virt_launcher.hypervisor.ports import Hypervisor

ContextOf = Callable[[VirtualMachineInstance, Prepared], Context]


def converge(
    hypervisor: Hypervisor,
    preparer: DiskPreparer,
    vmi: VirtualMachineInstance,
    context_of: ContextOf,
    read_pid: Callable[[], int | None],
    *,
    revise: Callable[[Domain, VirtualMachineInstance], Domain] = lambda domain, _vmi: domain,
) -> tuple[NeedsRestart, ...]:
    """What could not be done without a restart. Raises LauncherError for what should have worked and did not. `revise`
    is what others make of the machine that is wanted."""
    live = from_xml(hypervisor.describe())
    vmi = replace(vmi, spec=without_coming(vmi.spec, vmi.status))
    there = live_sources(live)
    prepared = preparer.prepare(vmi, made=there)
    wanted = revise(wanted_domain(context_of(vmi, prepared), live), vmi)
    changes = difference(wanted, live)
    prepared.finish()

    def check(volume: str) -> None:
        source = prepared.sources.get(volume)
        held = (source.identity, source.layer) if source is not None else ()
        if files := [each for each in held if each is not None]:
            check_held(read_pid(), files)

    apply(hypervisor, [change for change in changes if not isinstance(change, NeedsRestart)], check)
    larger = grow(hypervisor, preparer.rooms(vmi, there), live)
    return (*(change for change in changes if isinstance(change, NeedsRestart)), *larger)
