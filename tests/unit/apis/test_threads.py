"""The first use of a struct by two threads at once: msgspec looks at a class without a lock of its own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
sys.setswitchinterval(1e-6)
from virt_core.apis.base import decode, from_plain
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance

pod, vmi = b'{"metadata": {"name": "a"}}', b'{"metadata": {"name": "b"}}'
jobs = [lambda: decode(pod, Pod), lambda: decode(vmi, VirtualMachineInstance), lambda: from_plain({}, Pod)] * 4
gate = threading.Barrier(len(jobs))

def run(job):
    gate.wait()
    job()

threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_first_decodes_at_once_do_not_crash() -> None:
    """Ended in a segmentation fault of virt-controller, one start in eight."""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
