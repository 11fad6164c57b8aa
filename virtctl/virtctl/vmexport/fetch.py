"""What `vmexport download` and `memory-dump download` have in common: from an export that exists to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virt_core.apis import exportplan
from virtctl.vmexport import objects
from virtctl.vmexport.download import Job, download
from virtctl.vmexport.parts import FileTarget, PipeTarget
from virtctl.vmexport.way import Broken, Way, choose

if TYPE_CHECKING:
    from virt_core.apis.export import VirtualMachineExport, VirtualMachineExportVolume
    from virtctl.session import Session

#: How long an exporter that ended may take to be replaced.
_AGAIN_S = 120.0
#: The links that are used: the packed ones.
_PACKED = (exportplan.FORMAT_GZIP, exportplan.FORMAT_ARCHIVE)


def fetch_volume(cluster: Session, export: VirtualMachineExport, output: str, **given: Any) -> str:
    """In words. Raises ClickException."""
    way = _way(cluster, export, given)
    volume = _volume(way, given.get("volume") or "")
    url = next((each.url for each in volume.formats if each.format in _PACKED), "")
    if not url:
        raise click.ClickException(f"volume {volume.name} has no packed link, and this virtctl takes no other")
    job = Job(
        way,
        objects.token_of(cluster, export),
        url,
        unpack=given.get("format") == exportplan.FORMAT_RAW,
        retries=given.get("retry", 0),
        again=lambda: _way(cluster, objects.wait_ready(cluster, export.metadata.name, _AGAIN_S), given),
        checksum=given.get("checksum", True),
    )
    click.echo(f"Downloading volume {volume.name} over {way.words}", err=True)
    sparse = job.unpack and url.endswith(exportplan.GZIP)
    target = PipeTarget(sys.stdout.buffer) if output == "-" else FileTarget(Path(output), sparse=sparse)
    return download(job, target)


def fetch_manifests(cluster: Session, export: VirtualMachineExport, *, secret: bool, **given: Any) -> list[Any]:
    """The documents."""
    way = _way(cluster, export, given)
    token = objects.token_of(cluster, export)
    found = _documents(way, token, exportplan.TYPE_ALL)
    return found + (_documents(way, token, exportplan.TYPE_SECRET) if secret else [])


def _documents(way: Way, token: str, kind: str) -> list[Any]:
    url = next((each.url for each in way.link.manifests if each.type == kind), "")
    if not url:
        raise click.ClickException("the export has no manifest: only that of a VM or a snapshot has one")
    try:
        with way.ask(url, token, {"Accept": "application/json"}) as answer:
            body = answer.read()
    except (Broken, OSError) as error:
        raise click.ClickException(str(error)) from error
    if answer.status != 200:
        raise click.ClickException(f"the exporter answers {answer.status}: {body[:500].decode(errors='replace')}")
    document = json.loads(body)
    return list(document["items"]) if document.get("kind") == "List" else [document]


def _way(cluster: Session, export: VirtualMachineExport, given: dict[str, Any]) -> Way:
    return choose(
        export,
        cluster.connection,
        forward=bool(given.get("port_forward")),
        service_url=given.get("service_url") or "",
        insecure=bool(given.get("insecure")),
    )


def _volume(way: Way, wanted: str) -> VirtualMachineExportVolume:
    names = [each.name for each in way.link.volumes]
    if not wanted and len(names) != 1:
        raise click.ClickException(f"the export has the volumes {', '.join(names)}: choose one with --volume")
    found = next((each for each in way.link.volumes if not wanted or each.name == wanted), None)
    if found is None:
        raise click.ClickException(f"the export has no volume {wanted!r}; it has {', '.join(names)}")
    return found
