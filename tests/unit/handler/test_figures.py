"""Machines as metrics: names and units, and no more of them than a VMI can have."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from framework.reference_metrics import OF_HANDLER

from virt_core.rpc.status import unavailable
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.metrics import Registry
from virt_handler.decisions.moving import figures_of
from virt_handler.decisions.silence import Verdict
from virt_handler.figures import collector
from virt_handler.figures.collector import Collector
from virt_handler.figures.table import MAX_DEVICES, PREFIX, ROWS, Figures, label_names, samples
from virt_handler.loop.errands import Errands
from virt_protos.launcher.v1 import launcher_pb2 as pb

STATS = {
    "cpu": {"time": 2_500_000_000, "user": 1_000_000_000},
    "memory": {"rss": 4, "current": 8, "majorFault": 3},
    "vcpu": [{"index": 0, "state": 1, "time": 1_000_000_000, "wait": 0}],
    "net": [{"name": "tap0", "rxBytes": 10, "txPkts": 2}],
    "block": [
        {"name": "vda", "backingIndex": 1, "rdBytes": 512, "wrTimes": 3_000_000_000},
        {"name": "vdz", "rdBytes": 1},
    ],
}


def figures(**changes: Any) -> Figures:
    known = {"drives": {"vda": "root"}, "nics": {"tap0": "default"}, "stats": STATS}
    return Figures("ns", "vm1", **{**known, **changes})


def values(found: Figures) -> dict[tuple[str, ...], float]:
    return {(row.name, *labels[3:]): value for row, labels, value in samples("n1", found)}


def test_units_are_seconds_and_bytes() -> None:
    found = values(figures(dirty_rate=1 << 20, filesystems=(("vda1", "/", "ext4", 5, 9),)))
    assert found == {
        ("cpu_usage_seconds_total",): 2.5,
        ("cpu_user_usage_seconds_total",): 1.0,
        ("memory_resident_bytes",): 4096,
        ("memory_actual_balloon_bytes",): 8192,
        ("memory_pgmajfault_total",): 3,
        ("vcpu_seconds_total", "0", "running"): 1.0,
        ("vcpu_wait_seconds_total", "0"): 0.0,
        ("network_receive_bytes_total", "default"): 10,
        ("network_transmit_packets_total", "default"): 2,
        ("storage_read_traffic_bytes_total", "root"): 512,
        ("storage_write_times_seconds_total", "root"): 3.0,
        ("filesystem_used_bytes", "vda1", "/", "ext4"): 5,
        ("filesystem_capacity_bytes", "vda1", "/", "ext4"): 9,
        ("dirty_rate_bytes_per_second",): 1 << 20,
    }


@pytest.mark.parametrize(
    "stats",
    [
        {"cpu": [], "memory": 1, "vcpu": "x", "net": {"a": 1}, "block": [[], None, 3]},
        {"cpu": {"time": "1", "user": True, "system": -1}, "memory": {"rss": 1 << 70}},
        {"block": [{"name": f"made-up-{n}", "rdReqs": 1} for n in range(100_000)]},
        {"vcpu": [{}], "net": [{"name": ["tap0"]}, {"name": None}]},
    ],
)
def test_a_launcher_that_lies_adds_nothing(stats: dict[str, Any]) -> None:
    assert values(figures(stats=stats)) == {}


def test_a_device_is_told_once() -> None:
    many = [{"name": "vda", "rdReqs": n} for n in range(MAX_DEVICES)]
    assert values(figures(stats={"block": many})) == {("storage_iops_read_total", "root"): 0}


class FakeLauncher:
    def __init__(self, stats: bytes = b"", hangs: threading.Event | None = None) -> None:
        self.stats, self.hangs = stats, hangs
        self.asked = 0

    def get_stats(self) -> bytes:
        if self.hangs is not None:
            self.hangs.wait(30)
        return self.stats

    def get_dirty_rate(self) -> int:
        raise unavailable("an old launcher does not know it")

    def get_filesystems(self) -> list[pb.GuestFilesystem]:
        self.asked += 1
        return [pb.GuestFilesystem(disk_name="vda1", mount_point="/", type="ext4", used_bytes=1, total_bytes=2)]


class FakeSession:
    def __init__(self, name: str, launcher: FakeLauncher) -> None:
        self.launcher, self.key, self.pod_uid = launcher, f"ns/{name}", f"pod-{name}"
        self.record = type("Record", (), {"namespace": "ns", "name": name})
        self.pulse = type("Pulse", (), {"verdict": lambda _self: Verdict.FINE})()
        domain = pb.Domain(disk_targets={"root": "vda"}, agent_connected=True)
        self._view = type("View", (), {"domain": domain, "report": None})

    def runs(self) -> bool:
        return True

    def view(self) -> Any:
        return self._view


def page(*sessions: FakeSession) -> tuple[Collector, Registry]:
    found, registry = Collector("n1", list(sessions), Errands(), SystemClock()), Registry()  # type: ignore[arg-type]
    registry.collect(found.collect)
    return found, registry


def test_the_page_has_every_machine_and_its_filesystems_are_asked_for_rarely() -> None:
    launcher = FakeLauncher(json.dumps(STATS).encode())
    _, registry = page(FakeSession("vm1", launcher))
    for _ in range(2):
        text = registry.render()
        labels = 'node="n1",namespace="ns",name="vm1"'
        assert f"kubevirt_vmi_cpu_usage_seconds_total{{{labels}}} 2.5" in text
        assert f'kubevirt_vmi_storage_read_traffic_bytes_total{{{labels},drive="root"}} 512' in text
        assert f'kubevirt_vmi_filesystem_capacity_bytes{{{labels},disk_name="vda1",' in text
        assert "# TYPE kubevirt_vmi_cpu_usage_seconds_total counter" in text
        assert "dirty_rate_bytes_per_second{" not in text
    assert launcher.asked == 1


def test_a_launcher_that_hangs_costs_its_own_figures_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "DEADLINE_S", 0.5)
    let_go = threading.Event()
    good = FakeSession("good", FakeLauncher(json.dumps(STATS).encode()))
    stuck = FakeSession("stuck", FakeLauncher(hangs=let_go))
    _, registry = page(stuck, good)
    try:
        for _ in range(2):
            text = registry.render()
            assert 'name="good"' in text
            assert 'name="stuck"' not in text
    finally:
        let_go.set()


@pytest.mark.parametrize("stats", [b"{", b"[1]", b"[" * 100_000, b'{"cpu":' + b" " * (2 << 20) + b"{}}"])
def test_what_is_no_document_is_no_figure(stats: bytes) -> None:
    _, registry = page(FakeSession("vm1", FakeLauncher(stats)))
    assert "kubevirt_vmi_cpu_usage_seconds_total{" not in registry.render()


def test_a_move_is_told_by_the_names_of_the_reference_while_it_lasts() -> None:
    rows = {f"{PREFIX}{row.name}": (row.kind, label_names(row)) for row in ROWS if row.name.startswith("migration")}
    assert rows == OF_HANDLER
    move = pb.Move(
        uid="job",
        mode="PreCopy",
        total_bytes=100,
        processed_bytes=60,
        remaining_bytes=40,
        bytes_per_second=7,
    )
    assert values(figures(stats={}, move=figures_of(move))) == {
        ("migration_data_bytes_total",): 100,
        ("migration_data_processed_bytes",): 60,
        ("migration_data_remaining_bytes",): 40,
        ("migration_memory_transfer_rate_bytes",): 7,
        ("migration_dirty_memory_rate_bytes",): 0,
    }
    move.ended_us = 1
    assert values(figures(stats={}, move=figures_of(move))) == {}
