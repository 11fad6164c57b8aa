"""A guest that writes to its serial console without end: the log stays small, readers follow, the machine runs on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.functional.launcher.sandbox import UID, Sandbox, eventually
from tests.functional.launcher.vmis import request, with_volume
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

LIMIT = 256 << 10
#: What a serial port may bring between two looks.
SLACK = 4 << 20
FLOOD = """#!/bin/sh
flood() {
  i=0
  while :; do echo "flood $i of a line that is there to fill the disk of the node"; i=$((i+1)); done
}
flood > /dev/console &
"""


def test_a_flood_on_the_console_is_bounded(
    box: Sandbox, capability_cache: list[pb.CacheFile], guest_files: Path
) -> None:
    shutil.copytree(guest_files, box.root / "images/disk_0")
    box.serve_notify()
    box.start("--max-log-bytes", str(LIMIT))
    box.wait_ready()
    log = box.root / "private" / UID / "virt-serial0-log"
    older = log.with_name(f"{log.name}.1")
    with follower(log, box.root / "followed") as followed:
        box.stub.SyncVMI(request(_vmi(), capability_cache), timeout=30)
        told = []
        for _ in range(3):
            last = told[-1] if told else -1
            told.append(eventually(lambda last=last: _rotated(log, older, last), within_s=120))
        assert told == sorted(told)
        eventually(lambda: _last_number(followed) > told[-1], within_s=120)
    assert box.handler.domains[-1].state == pb.DOMAIN_STATE_RUNNING
    assert box.stub.GetDomain(pb.GetDomainRequest()).domain.state == pb.DOMAIN_STATE_RUNNING


def _rotated(log: Path, older: Path, last: int) -> int:
    """The newest line that was moved aside, once there is a newer one than `last`."""
    sizes = [path.stat().st_size for path in (log, older) if path.exists()]
    assert sum(sizes) <= 2 * LIMIT + SLACK
    newest = _last_number(older)
    return newest if newest > last else 0


def _last_number(path: Path) -> int:
    """Of the last whole line of the flood."""
    if not path.exists():
        return -1
    lines = path.read_text(errors="replace").splitlines()[:-1]
    numbers = [
        int(words[1]) for line in lines[-5:] if (words := line.split()) and words[0] == "flood" and len(words) > 12
    ]
    return numbers[-1] if numbers else -1


@contextmanager
def follower(log: Path, into: Path) -> Iterator[Path]:
    """`tail -F`, as a container that shows the log would run it."""
    with into.open("wb") as output:
        process = subprocess.Popen(["tail", "-c", "+1", "-F", str(log)], stdout=output, stderr=subprocess.DEVNULL)
    try:
        yield into
    finally:
        process.kill()
        process.wait(10)


def _vmi() -> dict[str, object]:
    body = with_volume({"containerDisk": {"image": "guest:v1"}})
    body["spec"]["domain"]["memory"] = {"guest": "128Mi"}
    body["spec"]["domain"]["devices"]["disks"] += [{"name": "ci", "disk": {"bus": "virtio"}}]
    body["spec"]["volumes"] += [{"name": "ci", "cloudInitNoCloud": {"userData": FLOOD}}]
    return body
