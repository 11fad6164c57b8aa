"""Where an export stands, in one sentence. Pure."""

from __future__ import annotations

from virt_core.apis.export import VirtualMachineExport
from virtctl.explain.render import Explanation
from virtctl.explain.words import Standing


def explained(export: VirtualMachineExport) -> Explanation:
    """With where its volumes are to be had."""
    links = export.status.links
    shown = links.external or links.internal if links is not None else None
    return Explanation(
        kind=export.kind,
        namespace=export.metadata.namespace,
        name=export.metadata.name,
        phase=export.status.phase or "New",
        node="",
        standing=standing_of(export),
        steps=[],
        evidence=[each.url for volume in shown.volumes for each in volume.formats] if shown is not None else [],
    )


def standing_of(export: VirtualMachineExport) -> Standing:
    meta, source, status = export.metadata, export.spec.source, export.status
    of = f"The export of {source.kind} {source.name}"
    until = f" until {status.ttl_expiration_time}" if status.ttl_expiration_time else ""
    look = f"kubectl describe vmexport {meta.name} -n {meta.namespace}"
    ready = next((each for each in status.conditions if each.type == "Ready"), None)
    why = (ready.message or ready.reason) if ready is not None else ""
    if status.phase == "Ready":
        take = f"virtctl vmexport download {meta.name} --output FILE -n {meta.namespace}"
        return Standing(f"{of} is Ready: it can be downloaded{until}, with the token.", take, final=True)
    if status.phase in ("Skipped", "Terminated"):
        return Standing(f"{of} is {status.phase}: {why}.", look, final=True, failed=True)
    if not status.phase:
        return Standing(f"{of} was not looked at by virt-controller yet.", look)
    if ready is not None and ready.reason == "InUse" and source.kind == "VirtualMachine":
        return Standing(f"{of} waits{until}: {why}.", f"virtctl stop {source.name} -n {meta.namespace}")
    return Standing(f"{of} waits{until}: {why or 'for its exporter'}.", look)
