"""A launcher whose guest has a device of the node may lock memory, and so may its libvirt daemon, now and later."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.launcher.cases import Case, vmi_of
from virt_handler.pods import memlock

pytestmark = pytest.mark.root
_CAP_SYS_RESOURCE = 24
#: A launcher with its daemon, which both can be asked for their limits, and one that it starts after that.
LAUNCHER = """
exec 3<&0; ulimit -S -l 64
sh -c 'echo daemon; read x <&3; ulimit -l' &
read y; ulimit -l; sh -c 'ulimit -l'; wait
"""
LOW = 64 << 10
AS_ITSELF = ["setpriv", "--reuid=107", "--regid=107", "--clear-groups"]


def may_lift() -> bool:
    status = Path("/proc/self/status").read_text()
    effective = int(status.split("CapEff:")[1].split()[0], 16)
    return bool(effective >> _CAP_SYS_RESOURCE & 1)


@contextmanager
def launcher(*user: str) -> Iterator[subprocess.Popen[str]]:
    command = [*user, "sh", "-c", LAUNCHER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "daemon\n"
            yield process
        finally:
            process.kill()


def limits_of(process: subprocess.Popen[str]) -> set[str]:
    """Of the launcher, of a daemon that it starts now, and of the one that ran."""
    said, _ = process.communicate("\n\n", timeout=30)
    assert len(said.split()) == 3
    return set(said.split())


def lift(process: subprocess.Popen[str], limit: int) -> None:
    pidfd = os.pidfd_open(process.pid)
    try:
        memlock.lift(process.pid, pidfd, limit)
    finally:
        os.close(pidfd)


def test_lifted_for_who_runs_and_for_who_comes() -> None:
    """As far as anybody may: to the limit above which only a capability leads."""
    _, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if most == LOW:
        pytest.skip("nobody here may lock more than that")
    with launcher() as process:
        lift(process, most)
        assert limits_of(process) == {"unlimited" if most == resource.RLIM_INFINITY else str(most >> 10)}


@pytest.mark.skipif(not may_lift(), reason="no CAP_SYS_RESOURCE here")
def test_lifted_without_end_for_the_user_of_launchers() -> None:
    with launcher(*AS_ITSELF) as process:
        lift(process, resource.RLIM_INFINITY)
        assert limits_of(process) == {"unlimited"}


@pytest.mark.skipif(may_lift(), reason="CAP_SYS_RESOURCE here")
def test_what_is_missing_is_named() -> None:
    with launcher(*AS_ITSELF) as process, pytest.raises(OSError, match="needs CAP_SYS_RESOURCE"):
        lift(process, resource.RLIM_INFINITY)


def test_low_without_it() -> None:
    with launcher() as process:
        assert limits_of(process) == {str(LOW >> 10)}


def test_a_launcher_that_ended_has_no_limit_to_lift() -> None:
    with launcher() as process:
        pidfd = os.pidfd_open(process.pid)
        limits_of(process)
    try:
        with pytest.raises(ProcessLookupError):
            memlock.lift(process.pid, pidfd)
    finally:
        os.close(pidfd)


@pytest.mark.parametrize(
    ("domain", "needed"),
    [
        ({"devices": {}}, False),
        ({"devices": {"gpus": [{"name": "g", "deviceName": "a/b"}]}}, True),
        ({"devices": {"hostDevices": [{"name": "h", "deviceName": "a/b"}]}}, True),
        ({"devices": {}, "launchSecurity": {"snp": {}}}, True),
        ({"devices": {}, "launchSecurity": {"tdx": {}}}, False),
        ({"devices": {}, "cpu": {"realtime": {}}}, True),
        ({"devices": {}, "memory": {"guest": "64Mi", "reservedOverhead": {"memLock": "Required"}}}, True),
        ({"devices": {}, "memory": {"guest": "64Mi", "reservedOverhead": {"memLock": "NotRequired"}}}, False),
    ],
)
def test_only_where_memory_must_stay_in_its_place(domain: dict[str, object], needed: bool) -> None:
    assert memlock.needs_locked_memory(vmi_of(Case(domain=domain))) is needed
