"""conmon, the small program that stays beside each container.

It holds the container's output and takes its exit code, and both are files: the node agent can be killed and started
again without the container, its log or its exit code noticing.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from virt_core.apis.base import decode
from virt_core.runtime.procs import ProcessGone, ProcessId
from virt_local.node.messages import plain_message
from virt_local.node.runtime import cgroups

CREATE_DEADLINE_S = 60.0
LOG_SIZE_MAX = 16 << 20
#: Of programs in containers, whatever ours is: runc makes missing mount points, which every user there must pass.
UMASK = 0o022
_MAX_REPORT = 1 << 16


class StartError(RuntimeError):
    """runc refused the container; the text is for its status."""


@dataclass(frozen=True)
class MonitorSettings:
    conmon: str
    runc: str
    runc_root: Path
    cgroup: str


class _Report(msgspec.Struct):
    """What conmon says on its pipe once runc has made the container: its pid, or a negative number and the reason."""

    data: int = -1
    message: str = ""


@dataclass(frozen=True)
class Created:
    process: ProcessId
    monitor: ProcessId


def create(
    settings: MonitorSettings, container_id: str, bundle: Path, log_path: Path, *, stdin: str, terminal: bool
) -> Created:
    """Makes the container, up to the point where only its program is not started. Raises StartError."""
    report_r, report_w = os.pipe2(os.O_CLOEXEC)
    start_r, start_w = os.pipe2(os.O_CLOEXEC)
    try:
        command = _command(settings, container_id, bundle, log_path)
        command += _terminal_flags(stdin, terminal)
        try:
            _spawn(command, bundle, settings.cgroup, report_w, (start_r, start_w))
        finally:
            os.close(report_w)
        pid = _read_report(report_r)
    finally:
        for fd in (report_r, start_r, start_w):
            os.close(fd)
    return _created(pid, bundle)


def _command(settings: MonitorSettings, container_id: str, bundle: Path, log_path: Path) -> list[str]:
    return [
        settings.conmon,
        "--api-version=1",
        f"--cid={container_id}",
        f"--cuuid={container_id}",
        f"--name={container_id}",
        f"--bundle={bundle}",
        f"--runtime={settings.runc}",
        f"--runtime-arg=--root={settings.runc_root}",
        f"--container-pidfile={bundle}/pid",
        f"--conmon-pidfile={bundle}/monitor.pid",
        f"--exit-dir={bundle}/exit",
        f"--log-path=k8s-file:{log_path}",
        f"--log-size-max={LOG_SIZE_MAX}",
        "--full-attach",
        "--no-sync-log",
        "--log-level=error",
    ]


def _terminal_flags(stdin: str, terminal: bool) -> list[str]:
    flags = ["--terminal"] if terminal else []
    if stdin:
        flags.append("--stdin")
    if stdin == "keep":
        flags.append("--leave-stdin-open")
    return flags


def _spawn(command: list[str], bundle: Path, cgroup: str, report_w: int, start: tuple[int, int]) -> None:
    """conmon waits on its start pipe until it sits in the right cgroup, then forks away from us."""
    env = {
        "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        "_OCI_SYNCPIPE": str(report_w),
        "_OCI_STARTPIPE": str(start[0]),
    }
    with (bundle / "monitor.log").open("ab") as errors:
        process = subprocess.Popen(
            command,
            cwd=bundle,
            env=env,
            pass_fds=(report_w, start[0]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            umask=UMASK,
        )
    cgroups.join(cgroup, process.pid)
    os.write(start[1], b"0")
    if process.wait(CREATE_DEADLINE_S) != 0:
        raise StartError(f"conmon ended with code {process.returncode}: {_tail(bundle / 'monitor.log')}")


def _read_report(fd: int) -> int:
    deadline = time.monotonic() + CREATE_DEADLINE_S
    data = b""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while b"\n" not in data and len(data) < _MAX_REPORT:
        if not poller.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            raise StartError(f"runc did not make the container within {CREATE_DEADLINE_S:.0f} s")
        chunk = os.read(fd, 4096)
        if not chunk:
            break
        data += chunk
    try:
        report = decode(data.partition(b"\n")[0], _Report)
    except msgspec.DecodeError as err:
        raise StartError("conmon ended without a report") from err
    if report.data <= 0:
        raise StartError(plain_message(report.message) or "runc gave no reason")
    return report.data


def _created(pid: int, bundle: Path) -> Created:
    try:
        monitor = ProcessId.of(int((bundle / "monitor.pid").read_text()))
        return Created(ProcessId.of(pid), monitor)
    except (OSError, ValueError, ProcessGone) as err:
        raise StartError(f"the container ended while it was made: {err}") from err


def _tail(path: Path) -> str:
    return path.read_bytes()[-500:].decode(errors="replace").strip() or "no reason given"
