"""Identity by real cgroups."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from virt_handler.pods import isolation

pytestmark = pytest.mark.root


def hierarchy() -> Path | None:
    """A place where a cgroup can be made: any v1 controller that is not special, or v2."""
    root = Path("/sys/fs/cgroup")
    places = [root / "pids", root / "freezer", root / "unified", root]
    return next((place for place in places if (place / "cgroup.procs").exists() and os.access(place, os.W_OK)), None)


@pytest.fixture
def pod_process() -> Iterator[tuple[str, int]]:
    place = hierarchy()
    if place is None:
        pytest.skip("no writable cgroup hierarchy here")
    pod_uid = str(uuid.uuid4())
    group = place / f"pod{pod_uid}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    process = subprocess.Popen(["sleep", "300"])
    try:
        (group / "cgroup.procs").write_text(str(process.pid))
        yield pod_uid, process.pid
    finally:
        process.kill()
        process.wait(5)
        group.rmdir()


def test_process_is_found_by_its_cgroup(pod_process: tuple[str, int]) -> None:
    pod_uid, pid = pod_process
    assert isolation.pod_of(pid) == pod_uid
    assert isolation.pod_pids(pod_uid) == [pid]
    assert isolation.pod_of(os.getpid()) != pod_uid


def test_namespace_of_the_node_is_not_handed_out(pod_process: tuple[str, int]) -> None:
    with pytest.raises(isolation.NoNamespaceError):
        isolation.open_netns(pod_process[0])
