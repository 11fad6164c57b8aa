"""A server that we start for a Pod joins the Pod's cgroups, whatever virt-handler's own container shows it of them.

Who stays in the container's cgroup dies with the container: a restart of virt-handler would take the guests' DHCP.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

#: A node in a PID namespace, as its first process: a Pod with cgroups of its own, and a netsetup with a view of them.
NODE = """
import json, subprocess, sys, time
from pathlib import Path
from virt_netsetup.cgroups import files_of

view, child = json.loads(sys.argv[1]), sys.argv[2]
pod = subprocess.Popen(["sleep", "300"])
folders = [file.parent / f"placement-{sys.argv[3]}" for file in files_of(pod.pid, but_not={})]
try:
    for folder in folders:
        folder.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (folder / name).exists() and not (folder / name).read_text().strip():
                (folder / name).write_text((folder.parent / name).read_text())
        (folder / "cgroup.procs").write_text(str(pod.pid))
    done = subprocess.run(
        [*view, sys.executable, "-c", child, str(pod.pid)], capture_output=True, text=True, timeout=60
    )
    pods = Path(f"/proc/{pod.pid}/cgroup").read_text()
    print(json.dumps({"child": done.stdout, "pod": pods, "error": done.stderr, "folders": len(folders)}))
finally:
    pod.kill()
    pod.wait(timeout=10)
    # The child's process was killed with its own; until the kernel has buried it, it keeps the folder.
    for folder in filter(Path.exists, folders):
        for _ in range(100):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)
        else:
            folder.rmdir()
"""
CHILD = """
import os, signal, sys, tempfile
from virt_netsetup.daemon import start
from virt_netsetup.process import Placement
with tempfile.NamedTemporaryFile() as told:
    script = f"cat /proc/self/cgroup > {told.name}; echo ready >&2; exec sleep 300"
    how = {"prepare": lambda: None, "begun": lambda _pid: None, "ready": b"ready", "within_s": 10}
    pid = start(["/bin/sh", "-c", script], Placement(int(sys.argv[1])), **how)
    os.kill(pid, signal.SIGKILL)
    print(told.read().decode(), end="")
"""
SEPARATE = ["unshare", "--mount", "--propagation", "private"]
#: As in a container on version 2: a cgroup namespace of its own, with a view that begins there.
NAMESPACED = [*SEPARATE, "--cgroup"]
#: As on version 1: only the own part of each hierarchy is mounted, here nothing at all.
BLIND = ["sh", "-ec", 'mount -t tmpfs none /sys/fs/cgroup; exec "$@"', "sh"]


@pytest.mark.parametrize(
    "view",
    [[], NAMESPACED, [*SEPARATE, *BLIND], [*NAMESPACED, *BLIND]],
    ids=["plain", "own-namespace", "no-mounts", "own-namespace-no-mounts"],
)
def test_child_joins_every_cgroup_of_the_pod(view: list[str], tmp_path: Path) -> None:
    node = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", sys.executable, "-c", NODE]
    # tmp_path's own name comes again when the test is run once more.
    command = [*node, json.dumps(view), CHILD, name := f"{tmp_path.name}-{os.getpid()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["child"] == told["pod"], told["error"]
    assert told["folders"] > 0
    assert name in told["pod"]
