"""The part of the door that moves the machine to another launcher's libvirt.

Imported when a move begins: most machines end where they started.
"""

from __future__ import annotations

from typing import Any

import libvirt

from virt_launcher.errors import AbortedError
from virt_launcher.hypervisor.ports import JobFigures
from virt_launcher.moves.destination import rewritten
from virt_launcher.moves.plan import MovePlan

_ALWAYS = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER | libvirt.VIR_MIGRATE_PERSIST_DEST


def migrate(domain: Any, plan: MovePlan, *, again: bool = False) -> None:
    # What the machine is now, not what it was defined as: devices may have come and gone.
    xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE)
    xml = rewritten(xml, plan.tune, plan.images, plan.places)
    try:
        domain.migrateToURI3(
            f"qemu+unix:///session?socket={plan.route.libvirt}", parameters(plan, xml), flags(plan, again)
        )
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_ABORTED:
            raise AbortedError("the move was given up") from error
        raise


def flags(plan: MovePlan, again: bool = False) -> int:
    wanted = (
        (bool(plan.disks), libvirt.VIR_MIGRATE_NON_SHARED_INC),
        (plan.unsafe, libvirt.VIR_MIGRATE_UNSAFE),
        (plan.auto_converge, libvirt.VIR_MIGRATE_AUTO_CONVERGE),
        (plan.post_copy, libvirt.VIR_MIGRATE_POSTCOPY),
        (again, libvirt.VIR_MIGRATE_POSTCOPY_RESUME),
        (plan.paused, libvirt.VIR_MIGRATE_PAUSED),
        (plan.parallel > 1, libvirt.VIR_MIGRATE_PARALLEL),
    )
    return int(sum((flag for on, flag in wanted if on), _ALWAYS))


def parameters(plan: MovePlan, xml: str) -> dict[str, Any]:
    given: dict[str, Any] = {
        libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{plan.route.memory}",
        libvirt.VIR_MIGRATE_PARAM_DEST_XML: xml,
        libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: xml,
    }
    if plan.bandwidth_mib:
        given[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = plan.bandwidth_mib
    if plan.bandwidth_mib and plan.post_copy:
        # Without it post-copy would take all there is, whatever the limit says.
        given[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH_POSTCOPY] = plan.bandwidth_mib
    if plan.parallel > 1:
        given[libvirt.VIR_MIGRATE_PARAM_PARALLEL_CONNECTIONS] = plan.parallel
    if plan.disks:
        given[libvirt.VIR_MIGRATE_PARAM_DISKS_URI] = f"unix://{plan.route.disks}"
        given[libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS] = list(plan.disks)
    return given


def figures(domain: Any, *, over: bool = False) -> JobFigures | None:
    found = domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED if over else 0)
    if found.get("type", 0) == libvirt.VIR_DOMAIN_JOB_NONE:
        return None
    page = found.get("memory_page_size", 4096)
    return JobFigures(
        total=found.get("data_total", 0),
        processed=found.get("data_processed", 0),
        remaining=found.get("data_remaining", 0),
        rate=found.get("memory_bps", 0) + found.get("disk_bps", 0),
        dirty_rate=found.get("memory_dirty_rate", 0) * page,
        iteration=found.get("memory_iteration", 0),
        downtime_ms=found.get("downtime", 0),
    )
