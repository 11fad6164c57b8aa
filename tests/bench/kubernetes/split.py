"""Where the processor time of a start goes on a cluster, by program: a VMI beside a plain Pod, in turns.

Only programs of Kubernetes and ours count, so that other work on the machine does not. As in `tests.bench.startcost` a
process has the time of the children that it waited for: containerd's shims have runc, containerd has the CNI plugins.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter

from tests.bench.kubernetes import starts
from tests.bench.kubernetes.starts import Kind
from tests.bench.rows import Row, show
from tests.bench.startcost import spent_ms
from tests.e2e.engine import process_table
from tests.e2e.kubernetes import Kubernetes, attach

ROUNDS = 6
#: What a program's name begins with.
_OF_KUBERNETES = ("kube-", "kubelet", "etcd", "containerd", "runc", "pause", "coredns")
_COUNTED = ("virt-", "libvirtd", "virtqemud", "virtlogd", "qemu-system", "dnsmasq", *_OF_KUBERNETES)


def program(args: list[str]) -> str:
    """The name of what runs, also below an interpreter; nothing for what is not counted."""
    names = [os.path.basename(word) for word in args[:4] if word and not word.startswith("-")]
    return next((name for name in names if name.startswith(_COUNTED)), "")


def spent(engine: Kubernetes) -> dict[tuple[int, str], int]:
    """Milliseconds by process so far. A virt-local beside the cluster has programs of the same names."""
    ours = set(engine.own_pids()) if engine.cluster.owned else None
    found = {}
    for pid, args in process_table():
        name = program(args)
        if name and (ours is None or pid in ours or name.startswith(_OF_KUBERNETES)):
            found[pid, name] = spent_ms(pid)
    return found


def one(engine: Kubernetes, kind: Kind, name: str) -> Counter[str]:
    before = spent(engine)
    _, observer = starts.burst(engine.kubeconfig, kind, [name], keep=True)
    found: Counter[str] = Counter()
    for (pid, program_name), ms in spent(engine).items():
        found[program_name] += ms - before.get((pid, program_name), 0)
    starts.delete(engine.kubeconfig, kind, [name], observer)
    time.sleep(3)  # What its end costs is not the next one's.
    return found


def rows(engine: Kubernetes, pod: Kind) -> list[Row]:
    kinds = {"pod": pod, "vmi": starts.VMI}
    found: dict[str, list[Counter[str]]] = {label: [] for label in kinds}
    for number in range(ROUNDS + 1):
        for label, kind in kinds.items():
            found[label].append(one(engine, kind, f"split-{label}-{number}"))
    ours, floor = found["vmi"][1:], found["pod"][1:]

    def mean(counters: list[Counter[str]], name: str) -> float:
        return statistics.mean(each[name] for each in counters)

    def row(what: str, ms: float, floor_ms: float) -> Row:
        return Row(what, f"{ms:.0f} ms", floor=f"plain Pod {floor_ms:.0f} ms")

    names = sorted({name for each in ours for name in each}, key=lambda name: -mean(ours, name))
    total, floor_total = (statistics.mean(each.total() for each in counters) for counters in (ours, floor))
    table = [row(f"  {name}", mean(ours, name), mean(floor, name)) for name in names if mean(ours, name) >= 1]
    return [
        Row("processor time of a start", f"{total:.0f} ms", "<= 1000 ms", f"plain Pod {floor_total:.0f} ms"),
        *table,
    ]


def main() -> None:
    from tests.bench.kubernetes.__main__ import floor_image

    engine = attach()
    engine.start()
    show(rows(engine, starts.pod_kind(floor_image(engine))))


if __name__ == "__main__":
    main()
