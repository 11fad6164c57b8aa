"""`virt-importer`: process 1 of an importer Pod.

The plan is in its environment, the claim is mounted, its last words are the report.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path

from msgspec.structs import replace

from virt_core.apis import importplan
from virt_core.apis.base import decode, encode
from virt_core.apis.importplan import ImportPlan, ImportReport
from virt_launcher.importer.errors import Refused, Trouble
from virt_launcher.importer.run import Places, run

#: Of glibc: M_MMAP_THRESHOLD and M_TRIM_THRESHOLD. Above what is ever under way at once.
_MEMORY = ((-3, 16 << 20), (-1, 32 << 20))
_LAST_WORDS = "/dev/termination-log"
#: A file may be a little longer than its disk, never much.
_SLACK = 1 << 30


def main() -> int:
    plan = decode(os.environ[importplan.PLAN], ImportPlan)
    _limit(plan)
    report = attempt(plan, Places())
    _say(report, Path(_LAST_WORDS))
    return 0 if report.reason == importplan.DONE else 1


def attempt(plan: ImportPlan, places: Places) -> ImportReport:
    """Always a report."""
    _keep_memory()
    try:
        return run(plan, places)
    except Refused as error:
        return ImportReport(reason=error.reason, message=str(error))
    except Trouble as error:
        return ImportReport(reason=importplan.TROUBLE, message=str(error))
    except OSError as error:
        return ImportReport(
            reason=importplan.TROUBLE, message=f"{error.strerror or error}: {error.filename or 'the claim'}"
        )


def _keep_memory() -> None:
    """Chunks come and go. The C library would give each back to the kernel, and get it anew page by page."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none.
    if tune is not None:
        for option, size in _MEMORY:
            tune(option, size)


def _limit(plan: ImportPlan) -> None:
    """No file beyond what the claim can need, no core, no child."""
    size = 2 * max(plan.size, plan.room) + _SLACK
    if not plan.block:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o007)


def _say(report: ImportReport, path: Path) -> None:
    short = replace(report, message=report.message[: importplan.MAX_MESSAGE])
    text = encode(short)
    sys.stdout.write(text.decode() + "\n")
    with path.open("wb") as file:
        file.write(text)
