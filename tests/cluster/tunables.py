"""Kernel switches that a kubelet sets on its machine, which here is somebody's: remembered by the first cluster and put
back by the last."""

from __future__ import annotations

import json
from pathlib import Path

SWITCHES = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
PROC = Path("/proc/sys")


def remember(record: Path, proc: Path = PROC) -> None:
    if record.exists():
        return
    record.parent.mkdir(parents=True, exist_ok=True)
    values = {name: (proc / name).read_text().strip() for name in SWITCHES if (proc / name).exists()}
    record.write_text(json.dumps(values) + "\n")


def put_back(record: Path, proc: Path = PROC) -> None:
    if not record.exists():
        return
    for name, value in json.loads(record.read_text()).items():
        if name in SWITCHES and (proc / name).read_text().strip() != value:
            (proc / name).write_text(value)
    record.unlink()
