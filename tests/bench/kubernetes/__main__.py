"""`make bench-cluster`: every row of the baseline, ours beside its floor, from one run on a cluster with Virtpod."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench import apiload, control, moves, plugging, relay
from tests.bench.__main__ import handoff_rows, unpack_boot
from tests.bench.floor import libvirt, pss_kib, raw_qemu
from tests.bench.kubernetes import costs, scale, split, starts
from tests.bench.kubernetes.starts import Burst, Kind
from tests.bench.rows import Row, show, times
from tests.e2e.kubernetes import Kubernetes, attach

ROUNDS = 7
BURSTS = (10, 20)
COUNTS = tuple(int(word) for word in os.environ.get("BENCH_VMIS", "100 1000 5000").split())


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def floor_image(engine: Kubernetes) -> str:
    """An image that is on every node for sure: the sandbox's, or on somebody else's cluster the launcher's."""
    if engine.cluster.owned:
        return starts.PAUSE_IMAGE
    daemon_set = engine.get("-n", "virtpod", "daemonset", "virt-handler")
    return str(daemon_set["spec"]["template"]["spec"]["initContainers"][0]["image"])


def one_at_a_time(engine: Kubernetes, kind: Kind, prefix: str) -> tuple[Burst, list[float]]:
    total, deletes = Burst(), []
    for number in range(ROUNDS):
        names = [f"{prefix}-{number}"]
        each, observer = starts.burst(engine.kubeconfig, kind, names, keep=True)
        total.seconds += each.seconds
        total.cpu_s += each.cpu_s
        deletes += starts.delete(engine.kubeconfig, kind, names, observer)
    return total, deletes


def single_rows(engine: Kubernetes, pod: Kind) -> list[Row]:
    floor, pod_deletes = one_at_a_time(engine, pod, "pod")
    ours, deletes = one_at_a_time(engine, starts.VMI, "one")
    over = ours.p50 - floor.p50
    return [
        Row("create to Running, P50 / P95", f"{ours.p50:.2f} / {ours.p95:.2f} s", "(KubeVirt 4.50 / 5.7 s)",
            f"plain Pod {floor.p50:.2f} / {floor.p95:.2f} s", times(ours.p50, floor.p50)),
        Row("  over the plain Pod", f"{over:.2f} s", "<= 1.0 s (KubeVirt 3.85, 6.9x)"),
        Row("CPU time of the machine for a start", f"{ours.cpu_each:.1f} s", "1.6 s (KubeVirt 3.2)",
            f"plain Pod {floor.cpu_each:.1f} s", times(ours.cpu_each, floor.cpu_each)),
        Row("delete to gone, P50", f"{statistics.median(deletes):.2f} s", "<= 1.5 s (KubeVirt 3.9)",
            f"plain Pod {statistics.median(pod_deletes):.2f} s"),
    ]  # fmt: skip


def burst_rows(engine: Kubernetes, pod: Kind) -> list[Row]:
    rows = []
    for count in BURSTS:
        names = [f"burst-{count}-{number}" for number in range(count)]
        floor, _ = starts.burst(engine.kubeconfig, pod, names)
        for label, kind in (("firmware only", starts.IDLE_VMI), ("guests boot", starts.VMI)):
            found, _ = starts.burst(engine.kubeconfig, kind, names)
            aim = _BURST_AIMS.get((count, label), "")
            rows += [
                Row(f"burst of {count}, {label}, P50 / P95", f"{found.p50:.1f} / {found.p95:.1f} s", aim,
                    f"plain Pods {floor.p50:.1f} / {floor.p95:.1f} s", times(found.p50, floor.p50)),
                Row("  CPU time of the machine for each", f"{found.cpu_each:.1f} s", "",
                    f"plain Pod {floor.cpu_each:.1f} s", times(found.cpu_each, floor.cpu_each)),
            ]  # fmt: skip
    return rows


_BURST_AIMS = {
    (10, "firmware only"): "4.6 / 5.2 s (KubeVirt 13.8 / 15.5)",
    (10, "guests boot"): "8.3 / 11.1 s (KubeVirt 24.8 / 33.4)",
}


def memory_rows(engine: Kubernetes, libvirtd: float) -> list[Row]:
    names = [f"mem-{number}" for number in range(10)]
    _, first = starts.burst(engine.kubeconfig, starts.VMI, names[:1], keep=True)
    one = [engine.get("vmi", names[0])]
    booked, handoffs = costs.booked_row(engine, one[0]), handoff_rows(one[0]["status"]["handoffs"])
    single = costs.beside_qemu(one)
    _, others = starts.burst(engine.kubeconfig, starts.VMI, names[1:], keep=True)
    of_ten = costs.beside_qemu([engine.get("vmi", name) for name in names])
    starts.delete(engine.kubeconfig, starts.VMI, names[:1], first)
    starts.delete(engine.kubeconfig, starts.VMI, names[1:], others)
    floor = f"libvirtd alone {libvirtd:.0f} MiB"
    return [
        *handoffs,
        Row("PSS beside QEMU, one VM", f"{single:.0f} MiB", "<= 70 MiB (KubeVirt 104)", floor, times(single, libvirtd)),
        Row("PSS beside QEMU, each of ten VMs", f"{of_ten:.0f} MiB", "<= 35 MiB (KubeVirt 52)"),
        booked,
    ]


def write_rows(engine: Kubernetes, pod: Kind) -> list[Row]:
    def start(kind: Kind, name: str) -> dict[str, int]:
        observers = []
        found = costs.writes_of(
            engine, lambda: observers.append(starts.burst(engine.kubeconfig, kind, [name], keep=True)[1])
        )
        starts.delete(engine.kubeconfig, kind, [name], observers[0])
        return found

    floor, ours = start(pod, "writes-pod"), start(starts.VMI, "writes-vmi")
    costs.settle(engine)
    vm = {kind: n for kind, n in control.vm_writes(engine).items() if kind not in costs.OF_KUBERNETES}
    beside = f"plain Pod: {costs.in_words(floor)}"
    return [
        Row("API writes, VMI create to Running", costs.in_words(ours),
            "<= 4 VMI, 7 Pod, 6 Events (KubeVirt 8, 11, 29)", beside),
        Row("API writes, VM create to Running", f"{sum(vm.values())}: {costs.in_words(vm)}", "<= 15 (KubeVirt 31)",
            beside, times(sum(vm.values()), sum(floor.values()))),
        costs.idle_row(engine),
    ]  # fmt: skip


def admission_rows(engine: Kubernetes) -> list[Row]:
    took = control.create_latency(engine.kubeconfig)
    p50, p95 = ({kind: control.percentile(values, share) for kind, values in took.items()} for share in (0.5, 0.95))
    virtctl, kubectl = control.virtctl_ms()
    return [
        Row("create of an 8 KB VMI, all webhooks, P50 / P95", f"{p50['vmi']:.1f} / {p95['vmi']:.1f} ms",
            "<= 10 / 20 ms (KubeVirt 12.2 / 21.5)", f"ConfigMap {p50['plain']:.1f} / {p95['plain']:.1f} ms",
            times(p50["vmi"], p50["plain"])),
        Row("virtctl --help", f"{virtctl:.0f} ms", "<= 150 ms (KubeVirt 38)",
            f"kubectl version --client {kubectl:.0f} ms", times(virtctl, kubectl)),
    ]  # fmt: skip


@dataclass(frozen=True)
class Floor:
    """Without us: seconds until a machine runs, and what libvirt's daemon holds."""

    qemu_s: float
    libvirt_s: float
    libvirtd_mib: float


def raw_floor() -> Floor:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        boot = unpack_boot(Path(folder))
        qemu = statistics.median(raw_qemu(boot).running_s for _ in range(ROUNDS))
        with libvirt() as daemon:
            virt = statistics.median(daemon.start(boot).running_s for _ in range(ROUNDS))
            return Floor(qemu, virt, pss_kib(daemon.pid) / 1024)


def migration_rows(engine: Kubernetes) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        return moves.rows(engine, unpack_boot(Path(folder)))


def main() -> None:
    engine = attach()
    engine.start()
    apiload.client(engine.kubeconfig)
    pod = starts.pod_kind(floor_image(engine))
    # One of each that is not counted: page caches, connections, the scheduler's view.
    for kind in (pod, starts.VMI):
        starts.burst(engine.kubeconfig, kind, ["warm-up"])
    say("the floor: raw QEMU, raw libvirt")
    floor = raw_floor()
    raw = Row("a raw domain running", "", floor=f"QEMU {floor.qemu_s:.2f} s, libvirt {floor.libvirt_s:.2f} s")
    parts: dict[str, Callable[[], list[Row]]] = {
        "single starts": lambda: [*single_rows(engine, pod), raw],
        "processor time by program": lambda: split.rows(engine, pod),
        "plugging": lambda: plugging.rows(engine, "<= 3 s"),
        "bursts": lambda: burst_rows(engine, pod),
        "memory": lambda: memory_rows(engine, floor.libvirtd_mib),
        "API writes": lambda: write_rows(engine, pod),
        "admission": lambda: admission_rows(engine),
        "services": lambda: costs.service_rows(engine),
        "migration": lambda: [*migration_rows(engine), *relay.rows()],
    }
    if COUNTS:
        parts[f"the control plane alone: {', '.join(map(str, COUNTS))} VMIs"] = lambda: scale.rows(engine, COUNTS)
    rows: list[Row] = []
    for number, (what, measure) in enumerate(parts.items(), start=1):
        say(f"[{number}/{len(parts)}] {what}")
        found = measure()
        show(found)  # At once: what was measured is not lost when a later part fails.
        rows += found
    say("the whole table")
    show(rows)


if __name__ == "__main__":
    main()
