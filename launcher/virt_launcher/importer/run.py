"""One import, from its plan to its report."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from virt_core.apis import importplan, names
from virt_core.apis.importplan import ImportPlan, ImportReport
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.files import SafeDir
from virt_core.runtime.record import record
from virt_launcher.importer.errors import Refused, SourceChanged, Trouble
from virt_launcher.importer.fill import Filler
from virt_launcher.importer.journal import Journal
from virt_launcher.importer.progress import Meter, serve
from virt_launcher.importer.target import CHUNK, DeviceTarget, FileTarget, Target

if TYPE_CHECKING:
    from virt_launcher.importer.http import HttpSource

#: A source that changes this often while it is read will not stand still.
_MAX_CHANGES = 3
#: An image may be longer than its disk, and a layer longer than its image.
_SLACK = 1 << 30
#: Nothing, something else than a directory, or a link.
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV})


@record(frozen=True, slots=True)
class Places:
    """Where things are in the container; elsewhere in tests."""

    directory: str = importplan.DIRECTORY
    device: str = importplan.DEVICE
    credentials: Path = Path(importplan.CREDENTIALS)
    certificates: Path = Path(importplan.CERTIFICATES)
    secret_headers: Path = Path(importplan.SECRET_HEADERS)
    source_directory: str = importplan.SOURCE_DIRECTORY
    source_device: str = importplan.SOURCE_DEVICE
    address: tuple[str, int] = ("", importplan.PORT)
    clock: Clock = SystemClock()


@record(frozen=True, slots=True)
class Job:
    """What a source works with."""

    plan: ImportPlan
    places: Places
    filler: Filler
    meter: Meter


def run(plan: ImportPlan, places: Places) -> ImportReport:
    """Raises Refused, Trouble, OSError."""
    if plan.block:
        return _run(plan, places, Journal(None), DeviceTarget(places.device, _room(plan)))
    with SafeDir.open_trusted(places.directory) as directory:
        journal = Journal(directory)
        if (report := _already(directory, journal)) is not None:
            return report
        return _run(plan, places, journal, FileTarget(directory, _room(plan)))


def _room(plan: ImportPlan) -> int:
    return max(plan.size, plan.room)


def _already(directory: SafeDir, journal: Journal) -> ImportReport | None:
    """An importer that ended between its last step and its last words."""
    if not directory.exists(names.FILE_DISK):
        return None
    entry = journal.read()
    if entry is None or not entry.whole:
        raise Refused(importplan.INVALID, f"the claim has a {names.FILE_DISK} already; nothing was written over it")
    return ImportReport(reason=importplan.DONE, format=entry.format, virtual_size=entry.size, taken=entry.settled)


def _run(plan: ImportPlan, places: Places, journal: Journal, target: Target) -> ImportReport:
    meter = Meter()
    server = serve(meter, places.address)
    try:
        source = _SOURCES.get(plan.source)
        if source is None:
            raise Refused(importplan.INVALID, f"there is no source {plan.source!r}")
        return source(Job(plan, places, Filler(plan, target, journal, meter), meter))
    finally:
        server.shutdown()
        server.server_close()
        target.close()


def _blank(job: Job) -> ImportReport:
    return job.filler.blank()


def _http(job: Job) -> ImportReport:
    # Each source alone needs what it needs: TLS, archives, a server. They are most of the time that a start takes.
    from virt_launcher.importer.http import HttpSource, access

    places = job.places
    given = access(job.plan.headers, list(_secret_headers(places)), places.credentials, places.certificates)
    source = HttpSource(job.plan.url, given, places.clock)
    for _ in range(_MAX_CHANGES):
        source.look()
        try:
            return _fetch(job, source)
        except SourceChanged:
            continue
    raise Trouble(f"{job.plan.url} changed while it was read")


def _fetch(job: Job, source: HttpSource) -> ImportReport:
    from dataclasses import asdict

    job.meter.length = source.identity.length
    if not source.ranges:
        return job.filler.fill(source.stream(), bounded=source.bounded)
    job.filler.describe(asdict(source.identity) | {"checksum": job.plan.checksum})
    if (entry := job.filler.earlier()) is not None:
        return job.filler.go_on(entry, source.stream, source.read)
    return job.filler.fill(source.stream(), source.read)


def _secret_headers(places: Places) -> Iterator[str]:
    for file in sorted(places.secret_headers.glob("*/*")):
        if file.is_file():
            yield file.read_text().strip()


def _registry(job: Job) -> ImportReport:
    from virt_launcher.importer.http import access
    from virt_launcher.importer.registry import Registry, parse

    places, plan = job.places, job.plan
    source = Registry(parse(plan.url), access([], [], places.credentials, places.certificates), job.meter)
    return job.filler.fill(source.disk(2 * _room(plan) + _SLACK))


def _image(job: Job) -> ImportReport:
    """An image that the node has pulled and mounted."""
    fd = _only_file(job.places.source_directory)
    try:
        job.meter.length = os.fstat(fd).st_size
        return job.filler.fill(_chunks(fd), lambda at, length: os.pread(fd, length, at))
    finally:
        os.close(fd)


def _only_file(source: str) -> int:
    """The disk of an image. Links are not followed, so that nothing else becomes one."""
    wanted = "the image must have exactly one file, and no link, in its directory /disk"
    try:
        with SafeDir.open_trusted(source) as root, root.subdir("disk") as directory:
            files = [name for name in directory.listdir() if stat.S_ISREG(directory.stat(name).st_mode)]
            if len(files) == 1:
                return directory.open(files[0])
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        raise Refused(importplan.NOT_FOUND, f"{wanted} ({error.strerror})") from error
    raise Refused(importplan.NOT_FOUND, wanted)


def _chunks(fd: int) -> Iterator[bytes]:
    while data := os.read(fd, CHUNK):
        yield data


def _clone(job: Job) -> ImportReport:
    """A disk of ours is raw, whatever its first bytes claim."""
    places = job.places
    if job.plan.source_block:
        fd = os.open(places.source_device, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    else:
        with SafeDir.open_trusted(places.source_directory) as directory:
            fd = directory.open(names.FILE_DISK, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not job.plan.source_block and not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Refused(importplan.INVALID, f"{names.FILE_DISK} of the source is not a regular file")
        return job.filler.copy(fd)
    finally:
        os.close(fd)


def _upload(job: Job) -> ImportReport:
    from virt_launcher.importer.upload import receive

    return receive(job.filler, job.meter)


_SOURCES: dict[str, Callable[[Job], ImportReport]] = {
    importplan.BLANK: _blank,
    importplan.HTTP: _http,
    importplan.REGISTRY: _registry,
    importplan.IMAGE: _image,
    importplan.CLONE: _clone,
    importplan.UPLOAD: _upload,
}
