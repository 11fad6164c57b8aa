"""`make bench-cluster`: every row of the baseline, ours beside its floor, from one run on a cluster with Virtpod."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from tests.bench import apiload, control
from tests.bench.__main__ import handoff_rows, unpack_boot
from tests.bench.floor import libvirt, pss_kib, raw_qemu
from tests.bench.kubernetes import costs, scale, starts
from tests.bench.kubernetes.starts import Burst, Kind
from tests.bench.rows import Row, show
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
    say("single starts: plain Pods, then VMIs")
    floor, pod_deletes = one_at_a_time(engine, pod, "pod")
    ours, deletes = one_at_a_time(engine, starts.VMI, "one")
    over = ours.p50 - floor.p50
    return [
        Row("plain Pod: create to Ready, P50 / P95", f"{floor.p50:.2f} / {floor.p95:.2f} s"),
        Row("VMI: create to Running, P50 / P95", f"{ours.p50:.2f} / {ours.p95:.2f} s", "(KubeVirt 4.50 / 5.7 s)"),
        Row("  over the plain Pod", f"{over:.2f} s ({ours.p50 / floor.p50:.1f}x)", "<= 1.0 s (KubeVirt 3.85, 6.9x)"),
        Row("CPU time of the machine for a Pod / a VMI", f"{floor.cpu_each:.1f} / {ours.cpu_each:.1f} s", "1.6 s"),
        Row("plain Pod: delete to gone, P50", f"{statistics.median(pod_deletes):.2f} s"),
        Row("VMI: delete to gone, P50", f"{statistics.median(deletes):.2f} s", "<= 1.5 s (KubeVirt 3.9)"),
    ]


def burst_rows(engine: Kubernetes, pod: Kind) -> list[Row]:
    rows = []
    for count in BURSTS:
        say(f"bursts of {count}")
        for label, kind in (("plain Pods", pod), ("VMIs, firmware only", starts.IDLE_VMI), ("VMIs", starts.VMI)):
            found, _ = starts.burst(engine.kubeconfig, kind, [f"burst-{count}-{n}" for n in range(count)])
            aim = _BURST_AIMS.get((count, label), "")
            value = f"{found.p50:.1f} / {found.p95:.1f} s, CPU {found.cpu_each:.1f} s each"
            rows.append(Row(f"burst of {count} {label}, P50 / P95", value, aim))
    return rows


_BURST_AIMS = {
    (10, "VMIs, firmware only"): "4.6 / 5.2 s (KubeVirt 13.8 / 15.5)",
    (10, "VMIs"): "8.3 / 11.1 s (KubeVirt 24.8 / 33.4)",
}


def memory_rows(engine: Kubernetes) -> list[Row]:
    say("memory of one VM, then of ten")
    names = [f"mem-{number}" for number in range(10)]
    _, first = starts.burst(engine.kubeconfig, starts.VMI, names[:1], keep=True)
    one = [engine.get("vmi", names[0])]
    rows = [
        Row("PSS beside QEMU, one VM", f"{costs.beside_qemu(one):.0f} MiB", "<= 70 MiB (KubeVirt 104)"),
        costs.booked_row(engine, one[0]),
        *handoff_rows(one[0]["status"]["handoffs"]),
    ]
    _, others = starts.burst(engine.kubeconfig, starts.VMI, names[1:], keep=True)
    all_of_them = [engine.get("vmi", name) for name in names]
    rows.append(
        Row("PSS beside QEMU, each of ten VMs", f"{costs.beside_qemu(all_of_them):.0f} MiB", "<= 35 (KubeVirt 52)")
    )
    starts.delete(engine.kubeconfig, starts.VMI, names[:1], first)
    starts.delete(engine.kubeconfig, starts.VMI, names[1:], others)
    return rows


def write_rows(engine: Kubernetes, pod: Kind) -> list[Row]:
    say("API writes")

    def start(kind: Kind, name: str) -> dict[str, int]:
        observers = []
        found = costs.writes_of(
            engine, lambda: observers.append(starts.burst(engine.kubeconfig, kind, [name], keep=True)[1])
        )
        starts.delete(engine.kubeconfig, kind, [name], observers[0])
        return found

    rows = [
        Row("API writes, a plain Pod to Ready", costs.in_words(start(pod, "writes-pod"))),
        Row("API writes, VMI create to Running", costs.in_words(start(starts.VMI, "writes-vmi")),
            "<= 4 VMI, 7 Pod, 6 Events (KubeVirt 8, 11, 29)"),
    ]  # fmt: skip
    counts = {kind: n for kind, n in control.vm_writes(engine).items() if kind not in costs.OF_KUBERNETES}
    rows.append(
        Row("API writes, VM create to Running", f"{sum(counts.values())}: {costs.in_words(counts)}", "<= 15 (31)")
    )
    return [*rows, costs.idle_row(engine)]


def admission_rows(engine: Kubernetes) -> list[Row]:
    say("admission")
    took = control.create_latency(engine.kubeconfig)
    p50, p95 = ({kind: control.percentile(values, share) for kind, values in took.items()} for share in (0.5, 0.95))
    virtctl, kubectl = control.virtctl_ms()
    return [
        Row("create of an 8 KB ConfigMap, P50 / P95", f"{p50['plain']:.1f} / {p95['plain']:.1f} ms"),
        Row("create of an 8 KB VMI, all webhooks, P50 / P95", f"{p50['vmi']:.1f} / {p95['vmi']:.1f} ms",
            "<= 10 / 20 ms (KubeVirt 12.2 / 21.5)"),
        Row("virtctl --help / kubectl version --client", f"{virtctl:.0f} / {kubectl:.0f} ms", "<= 150 ms"),
    ]  # fmt: skip


def floor_rows() -> list[Row]:
    say("raw QEMU and raw libvirt")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        boot = unpack_boot(Path(folder))
        qemu = statistics.median(raw_qemu(boot).running_s for _ in range(ROUNDS))
        with libvirt() as daemon:
            virt = statistics.median(daemon.start(boot).running_s for _ in range(ROUNDS))
            alone = pss_kib(daemon.pid) / 1024
    return [
        Row("raw QEMU / raw libvirt: running", f"{qemu:.2f} / {virt:.2f} s"),
        Row("raw libvirtd alone, PSS", f"{alone:.0f} MiB", "(28 beside KubeVirt)"),
    ]


def main() -> None:
    engine = attach()
    engine.start()
    apiload.client(engine.kubeconfig)
    pod = starts.pod_kind(floor_image(engine))
    # One of each that is not counted: page caches, connections, the scheduler's view.
    for kind in (pod, starts.VMI):
        starts.burst(engine.kubeconfig, kind, ["warm-up"])
    rows = [
        *floor_rows(),
        *single_rows(engine, pod),
        *burst_rows(engine, pod),
        *memory_rows(engine),
        *write_rows(engine, pod),
        *admission_rows(engine),
        *costs.service_rows(engine),
    ]
    if COUNTS:
        say(f"the control plane alone: {', '.join(map(str, COUNTS))} VMIs")
        rows += scale.rows(engine, COUNTS)
    show(rows)


if __name__ == "__main__":
    main()
