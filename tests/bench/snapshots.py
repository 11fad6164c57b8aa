"""A snapshot of a stopped VM and its restore to another one, beside copies of the same disk in the same file system.

The floors are `cp --reflink=auto` and `qemu-img convert`, each with its sync, for what is ready is on the disk. Where
the file system shares blocks cp takes no time at all, and the figure is what objects and controllers cost. Also on its
own: `python -m tests.bench.snapshots [MiB]`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import apiload
from tests.bench.apiload import Client
from tests.bench.rows import Row, show, times
from tests.bench.storage import CLAIMS, COPIES, MIB, ROUNDS, VMS, filled_claim, gone, median, place, same, seconds_of
from tests.bench.storage import until as reaches
from tests.e2e.engine import Engine, VirtLocal
from tests.e2e.vms import vm

_SIZE = 512 * MIB
_CLAIM, _VM, _BACK = "bench-saved", "bench-saved", "bench-back"


@dataclass(frozen=True, slots=True)
class Round:
    saved: float
    restored: float
    cp: float
    qemu_img: float


def _machine() -> dict[str, Any]:
    manifest = vm(_VM, "Halted")
    manifest["spec"]["template"]["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": _CLAIM}},
    ]
    return manifest


def _of_vm(name: str) -> dict[str, str]:
    return {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name}


def _make(client: Client, kind: str, plural: str, name: str, **spec: Any) -> float:
    """When it was asked for."""
    body = {"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    start = time.monotonic()
    client.request("POST", f"{COPIES}/{plural}", body)
    return start


def one(engine: Engine, client: Client, disk: Path, number: int) -> Round:
    name = f"bench-{number}"
    start = _make(client, "VirtualMachineSnapshot", "virtualmachinesnapshots", name, source=_of_vm(_VM))
    reaches(client, f"{COPIES}/virtualmachinesnapshots/{name}", lambda found: _status(found, "readyToUse"))
    saved = time.monotonic() - start
    wanted = {"target": _of_vm(_BACK), "virtualMachineSnapshotName": name}
    start = _make(client, "VirtualMachineRestore", "virtualmachinerestores", name, **wanted)
    found = reaches(client, f"{COPIES}/virtualmachinerestores/{name}", lambda found: _status(found, "complete"))
    (made,) = [each["persistentVolumeClaim"] for each in found["status"]["restores"]]
    reaches(client, f"{CLAIMS}/{made}", lambda claim: claim["status"].get("phase") == "Bound")
    restored = time.monotonic() - start
    same(disk, place(client, made) / disk.name)
    for kind, each in (("vmrestore", name), ("vm", _BACK), ("pvc", made), ("vmsnapshot", name)):
        gone(engine, kind, each)
    return Round(saved, restored, *_floors(disk))


def _status(found: Any, field: str) -> bool:
    return bool(found.get("status", {}).get(field))


def _floors(disk: Path) -> tuple[float, float]:
    made = disk.parent.parent / "bench-copy.img"
    copies = (f"cp --reflink=auto '{disk}' '{made}'", f"qemu-img convert -f raw -O raw '{disk}' '{made}'")
    found = []
    for copy in copies:
        found.append(seconds_of(["sh", "-c", f"{copy} && sync '{made}'"]))
        same(disk, made)
        made.unlink()
    return found[0], found[1]


def rows(engine: Engine, size: int = _SIZE) -> list[Row]:
    client = apiload.client(engine.kubeconfig)
    disk = filled_claim(client, _CLAIM, size)
    client.request("POST", VMS, _machine())
    try:
        rounds = [one(engine, client, disk, number) for number in range(ROUNDS)]
    finally:
        gone(engine, "vm", _VM)
        gone(engine, "pvc", _CLAIM)
    cp, other = median(each.cp for each in rounds), median(each.qemu_img for each in rounds)
    took = (("snapshot", median(r.saved for r in rounds)), ("its restore", median(r.restored for r in rounds)))
    words = f", {size // MIB} MiB / cp --reflink=auto"
    return [
        Row(
            what + words,
            f"{ours:.2f} s",
            "<= 1.5x, or 2 s where blocks are shared",
            f"{cp:.2f} s",
            f"{times(ours, cp)} ({times(ours, other)} of qemu-img convert: {other:.2f} s)",
        )
        for what, ours in took
    ]


def main() -> None:
    engine = VirtLocal()
    try:
        engine.start()
        show(rows(engine, int(sys.argv[1]) * MIB if len(sys.argv) > 1 else _SIZE))
    finally:
        engine.stop()


if __name__ == "__main__":
    main()
