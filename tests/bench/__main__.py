"""One run, one table: our starts beside raw QEMU's and raw libvirt's, memory, API writes, virt-local's own speed."""

from __future__ import annotations

import json
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import (
    apiload,
    control,
    exports,
    flood,
    imports,
    moves,
    plugging,
    relay,
    snapshots,
    startcost,
    traffic,
    wiring,
)
from tests.bench.floor import Boot, Start, libvirt, pss_kib, raw_qemu, wait_for_line
from tests.bench.rows import Row, show, times
from tests.e2e.engine import GUEST_LAYOUT, VirtLocal, process_table
from tests.e2e.manifests import kernel_boot

ROUNDS = 5


def unpack_boot(folder: Path) -> Boot:
    """Kernel and RAM disk out of the guest's image, for the floor."""
    blobs = GUEST_LAYOUT / "blobs" / "sha256"
    index = json.loads((GUEST_LAYOUT / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"].split(":")[1]).read_text())
    for layer in manifest["layers"]:
        with tarfile.open(blobs / layer["digest"].split(":")[1]) as tar:
            tar.extractall(folder)
    return Boot(folder / "boot" / "vmlinuz", folder / "boot" / "initrd.img")


def median(starts: list[Start]) -> Start:
    return Start(statistics.median(s.running_s for s in starts), statistics.median(s.first_line_s for s in starts))


def vmi_on_engine(engine: VirtLocal, name: str) -> tuple[Start, list[dict[str, Any]]]:
    """Creates a VMI with a warm client, waits for Running and for the guest's first line in the Pod's console log."""
    client = apiload.client(engine.kubeconfig)
    start = time.monotonic()
    client.create(kernel_boot(name))
    vmi = client.wait_phase(name, "Running")
    running = time.monotonic() - start
    log = console_log(engine, vmi)
    return Start(running, wait_for_line(log, start)), vmi["status"].get("handoffs", [])


def console_log(engine: VirtLocal, vmi: dict[str, Any]) -> Path:
    uid = vmi["metadata"]["uid"]
    pod = next(iter(vmi["status"]["activePods"]))
    volumes = engine.data / "nodes" / vmi["status"]["nodeName"] / "pods" / pod / "volumes"
    return volumes / "kubernetes.io~empty-dir" / "private" / uid / "virt-serial0-log"


def pod_pss(pod_uid: str) -> dict[str, int]:
    """PSS in KiB by program of everything that runs for a Pod: what is in its cgroup, and its conmon."""
    sizes: dict[str, int] = {}
    for pid, args in process_table():
        cgroup = Path(f"/proc/{pid}/cgroup").read_text()
        if f"pod{pod_uid}" in cgroup or ("conmon" in args[0] and pod_uid in " ".join(args)):
            name = "launcher" if any("virt-launcher" in a for a in args[:2]) else Path(args[0]).name
            sizes[name] = sizes.get(name, 0) + pss_kib(pid)
    return sizes


def measured(what: str, times: int, act: Callable[[int], Start]) -> Start:
    starts = []
    for number in range(times):
        starts.append(act(number))
        last = starts[-1]
        print(f"  {what} {number + 1}/{times}: running {last.running_s:.2f} s, first line {last.first_line_s:.2f} s")
        sys.stdout.flush()
    return median(starts)


def machine_rows(engine: VirtLocal, boot: Boot) -> list[Row]:
    qemu = measured("raw QEMU", ROUNDS, lambda _: raw_qemu(boot))
    with libvirt() as daemon:
        virt = measured("raw libvirt", ROUNDS, lambda _: daemon.start(boot))
    handoffs: list[list[dict[str, Any]]] = []

    def ours(number: int) -> Start:
        start, stamps = vmi_on_engine(engine, f"bench-{number}")
        handoffs.append(stamps)
        engine.kubectl("delete", "vmi", f"bench-{number}", "--timeout=60s", timeout=90)
        return start

    own = measured("a VMI", ROUNDS, ours)
    over = own.running_s - qemu.running_s
    rows = [
        Row("raw QEMU: running / first line", f"{qemu.running_s:.2f} / {qemu.first_line_s:.2f} s"),
        Row("raw libvirt: running / first line", f"{virt.running_s:.2f} / {virt.first_line_s:.2f} s"),
        Row("VMI: create to Running / first line", f"{own.running_s:.2f} / {own.first_line_s:.2f} s"),
        Row("VMI over raw QEMU, to Running", f"{over:.2f} s ({own.running_s / qemu.running_s:.1f}x)", "<= 1.5 s"),
        Row("VMI over raw QEMU, to the first line", f"{own.first_line_s - qemu.first_line_s:.2f} s", "<= 1.5 s"),
    ]
    return rows + handoff_rows(handoffs[-1])


def handoff_rows(stamps: list[dict[str, Any]]) -> list[Row]:
    rows, last = [], None
    for stamp in sorted(stamps, key=lambda s: s["time"]):
        seconds = apiload.seconds(stamp["time"])
        rows.append(
            Row(
                f"  handoff {stamp['name']} ({stamp['owner']})",
                f"+{0 if last is None else (seconds - last) * 1000:.0f} ms",
            )
        )
        last = seconds
    return rows


def memory_rows(engine: VirtLocal) -> list[Row]:
    rows = []
    names = ["mem-1", "mem-2"]
    for name in names:
        vmi_on_engine(engine, name)
        sizes = pod_pss(next(iter(engine.get("vmi", name)["status"]["activePods"])))
        qemu = sizes.pop("qemu-system-x86_64")
        ours = sizes.pop("launcher") + sizes.pop("libvirtd")
        rest = ", ".join(f"{name} {size / 1024:.1f}" for name, size in sorted(sizes.items()))
        label = f"PSS of launcher + libvirt, VM number {name[-1]}"
        rows.append(Row(label, f"{ours / 1024:.0f} MiB (QEMU {qemu / 1024:.0f}; {rest})", "<= 70 MiB"))
    for name in names:
        engine.kubectl("delete", "vmi", name, "--timeout=60s", timeout=90)
    return rows


def service_rows(engine: VirtLocal) -> list[Row]:
    return [
        Row(f"  PSS of {row['name']}", f"{pss_kib(row['pid']) / 1024:.0f} MiB")
        for row in engine.status()["components"]
        if row["pid"]
    ]


def write_rows(engine: VirtLocal) -> list[Row]:
    before = apiload.writes(engine.kubeconfig)
    vmi_on_engine(engine, "writes")
    after = apiload.writes(engine.kubeconfig)
    engine.kubectl("delete", "vmi", "writes", "--timeout=60s", timeout=90)
    counts = {kind: after[kind] - before.get(kind, 0) for kind in after if after[kind] > before.get(kind, 0)}
    rows = [Row("API writes on the VMI, create to Running", str(counts.get("virtualmachineinstances", 0)), "<= 4")]
    others = ", ".join(f"{kind} {n}" for kind, n in sorted(counts.items()) if kind != "virtualmachineinstances")
    return [*rows, Row("  other writes in that time", others)]


def api_rows(engine: VirtLocal) -> list[Row]:
    load = apiload.run(engine.kubeconfig)
    return [
        Row("virt-local: acknowledged writes", f"{load.writes_per_s:.0f} /s", ">= 300 /s"),
        Row("virt-local: write to watcher, P50 / P99", f"{load.p50_ms:.1f} / {load.p99_ms:.1f} ms", "P99 < 20 ms"),
    ]


def control_rows(engine: VirtLocal) -> list[Row]:
    took = control.create_latency(engine.kubeconfig)
    p50, p99 = ({kind: control.percentile(values, share) for kind, values in took.items()} for share in (0.5, 0.99))
    writes = control.vm_writes(engine)
    events = writes.pop("events", 0)
    virtctl, kubectl = control.virtctl_ms()
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(writes.items()))
    return [
        Row("create of an 8 KB VMI, all webhooks, P50 / P99", f"{p50['vmi']:.1f} / {p99['vmi']:.1f} ms"),
        Row("create of an 8 KB ConfigMap, P50 / P99", f"{p50['plain']:.1f} / {p99['plain']:.1f} ms"),
        Row("  the VMI's over the ConfigMap's, P50", f"{p50['vmi'] - p50['plain']:.1f} ms", "<= 10 ms"),
        Row("creates of such VMIs, four at once", f"{control.creates_per_second(engine.kubeconfig):.0f} /s"),
        Row("API writes, VM create to Running", f"{sum(writes.values())} + {events} Events ({kinds})", "<= 15"),
        Row(
            "virtctl --help / kubectl version --client",
            f"{virtctl:.0f} ms",
            "<= 3x",
            f"{kubectl:.0f} ms",
            times(virtctl, kubectl),
        ),
    ]


def main() -> None:
    engine = VirtLocal()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        boot = unpack_boot(Path(folder))
        try:
            engine.start()
            rows = [
                *machine_rows(engine, boot),
                *startcost.rows(engine),
                *write_rows(engine),
                *memory_rows(engine),
                *plugging.rows(engine),
                *service_rows(engine),
                *api_rows(engine),
                *control_rows(engine),
                *wiring.rows(),
                *traffic.rows(),
                *flood.rows(),
                *relay.rows(),
                *imports.rows(),
                *snapshots.rows(engine),
                *exports.rows(engine),
            ]
        finally:
            engine.stop()
        rows += moves.own_rows(boot)
    show(rows)


if __name__ == "__main__":
    main()
