"""A machine moves from one launcher to another: two real libvirt daemons, two QEMUs, and what breaks between them."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.vmis import request, vmi
from virt_core.apis import names
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
Cache = list[pb.CacheFile]
AT = "/mnt"
JOB = "0f2c9c7e-job"


class Cable:
    """Between the two boxes, in virt-handler's place. It can be cut."""

    def __init__(self, listen: Path, target: Path) -> None:
        self._target, self._pairs = target, list[socket.socket]()
        self.bytes = 0
        #: Open: all passes. Closed by `stop_after`.
        self.gate = threading.Event()
        self.gate.set()
        self._limit: int | None = None
        #: Takes everything from this side and passes nothing on: "source", "target".
        self.deaf_to: set[str] = set()
        self.ended = 0
        #: Nobody new gets through either.
        self.is_cut = False
        before = os.umask(0)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(listen))
        self._listener.listen(16)
        os.umask(before)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(self._target))
            self._pairs += [near, far]
            for side, source, sink in (("source", near, far), ("target", far, near)):
                threading.Thread(target=self._copy, args=(side, source, sink), daemon=True).start()

    def _copy(self, side: str, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 14):
                self.bytes += len(data)
                if side not in self.deaf_to:
                    sink.sendall(data)
                if self._limit is not None and self.bytes > self._limit:
                    self.gate.wait()
        except OSError:
            pass
        self.ended += 1
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def stop_after(self, limit: int) -> None:
        """Until `gate` is set."""
        self.gate.clear()
        self._limit = limit

    def cut(self) -> None:
        for each in self._pairs:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.close()
        self.gate.set()
        self.cut()
        for each in self._pairs:
            each.close()


class Pair:
    def __init__(self) -> None:
        self.source, self.target = Sandbox(), Sandbox()
        self.cables: dict[str, Cable] = {}

    def start(self) -> None:
        for box, extra in ((self.source, ()), (self.target, ("--role", "target"))):
            box.serve_notify()
            box.start("--grace-period-seconds", "2", *extra, at=AT)
        for box in (self.source, self.target):
            box.wait_ready()

    def connect(self) -> None:
        modular = (self.target.root / "libvirt/virtqemud-sock").exists()
        libvirt = self.target.root / "libvirt" / ("virtqemud-sock" if modular else "libvirt-sock")
        ends = {
            names.SOCKET_MOVE_LIBVIRT: libvirt,
            names.SOCKET_MOVE_MEMORY: self.target.sockets / names.SOCKET_MOVE_MEMORY,
            names.SOCKET_MOVE_DISKS: self.target.sockets / names.SOCKET_MOVE_DISKS,
        }
        self.cables = {name: Cable(self.source.sockets / name, end) for name, end in ends.items()}

    def close(self) -> None:
        for cable in self.cables.values():
            cable.close()
        self.source.close()
        self.target.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    both = Pair()
    try:
        yield both
    finally:
        both.close()


@pytest.fixture
def waiting(pair: Pair, capability_cache: Cache) -> tuple[Pair, dict[str, Any]]:
    """A machine that runs, with a disk that lives in its Pod, and a target that waits for it. Firmware alone writes
    next to nothing, so it moves however busy this computer is."""
    body = vmi(devices={"disks": [{"name": "scratch", "disk": {"bus": "virtio"}}]})
    body["spec"]["volumes"] = [{"name": "scratch", "emptyDisk": {"capacity": "16Mi"}}]
    pair.start()
    asked = request(body, capability_cache)
    pair.source.stub.SyncVMI(asked, timeout=60)
    pair.target.stub.PrepareTarget(pb.PrepareTargetRequest(vmi_json=asked.vmi_json, options=asked.options), timeout=60)
    pair.connect()
    return pair, body


def half_way(pair: Pair, body: dict[str, Any], **wishes: Any) -> threading.Event:
    """Begins a move that stops in the middle, for as long as the answer is not set."""
    cable = pair.cables[names.SOCKET_MOVE_MEMORY]
    cable.stop_after(100_000)
    migrate(pair, body, **wishes)
    pair.source.handler.wait_for(lambda d: d.move.total_bytes > 0)
    eventually(lambda: cable.bytes > 100_000)
    return cable.gate


def migrate(pair: Pair, body: dict[str, Any], **wishes: Any) -> None:
    pair.source.stub.Migrate(pb.MigrateRequest(uid=JOB, vmi_json=json.dumps(body).encode(), **wishes), timeout=10)


def domain(box: Sandbox) -> pb.Domain:
    return box.stub.GetDomain(pb.GetDomainRequest()).domain


def test_a_machine_moves(waiting: tuple[Pair, dict[str, Any]]) -> None:
    pair, body = waiting
    migrate(pair, body)
    left = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert not left.move.failed, left.move.reason
    here = pair.target.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_RUNNING)
    assert here.name == "ns_vm1"
    assert pair.source.wait_exit() == 0, pair.source.log.read_text()[-2000:]
    assert pair.cables[names.SOCKET_MOVE_DISKS].bytes > 0
    assert domain(pair.target).state == pb.DOMAIN_STATE_RUNNING


def at_the_switch(pair: Pair, body: dict[str, Any], *deaf_to: str) -> Cable:
    """Moves until all memory is there, the guest stands still, and libvirt asks the other side to let it run; what
    either says then gets lost. The cable between the two libvirts."""
    on, cable = half_way(pair, body), pair.cables[names.SOCKET_MOVE_LIBVIRT]
    cable.deaf_to.update(deaf_to)
    said = cable.bytes
    on.set()
    eventually(lambda: pair.cables[names.SOCKET_MOVE_MEMORY].ended and cable.bytes > said)
    assert domain(pair.source).state == pb.DOMAIN_STATE_PAUSED
    return cable


def is_running(box: Sandbox) -> bool:
    return domain(box).state == pb.DOMAIN_STATE_RUNNING


def settle(pair: Pair, outcome: Any) -> None:
    pair.source.stub.SettleMigration(pb.SettleMigrationRequest(uid=JOB, outcome=outcome), timeout=10)


def test_a_guest_that_may_run_there_does_not_run_here(waiting: tuple[Pair, dict[str, Any]]) -> None:
    pair, body = waiting
    cable = at_the_switch(pair, body, "target")
    pair.target.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_RUNNING)
    cable.cut()  # Before anybody here could hear that it runs there.
    pair.source.handler.wait_for(lambda d: d.move.held)
    assert domain(pair.source).state == pb.DOMAIN_STATE_PAUSED
    settle(pair, pb.SettleMigrationRequest.OUTCOME_GONE)
    pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    pair.source.wait_exit()
    after = [d.state for d in pair.source.handler.domains]
    assert pb.DOMAIN_STATE_RUNNING not in after[after.index(pb.DOMAIN_STATE_PAUSED) :]
    assert is_running(pair.target)


def test_a_guest_that_never_ran_there_goes_on_here(waiting: tuple[Pair, dict[str, Any]]) -> None:
    pair, body = waiting
    at_the_switch(pair, body, "source", "target")
    pair.target.close()
    pair.cables[names.SOCKET_MOVE_LIBVIRT].cut()
    pair.source.handler.wait_for(lambda d: d.move.held)
    assert domain(pair.source).state == pb.DOMAIN_STATE_PAUSED
    settle(pair, pb.SettleMigrationRequest.OUTCOME_STAYS)
    over = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert over.move.failed
    eventually(lambda: is_running(pair.source))


def test_a_target_that_dies_early_costs_nothing(waiting: tuple[Pair, dict[str, Any]]) -> None:
    pair, body = waiting
    half_way(pair, body)
    pair.target.close()
    over = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert over.move.failed
    assert over.move.reason
    assert is_running(pair.source)
    assert not any(d.move.held for d in pair.source.handler.domains)


def test_a_move_is_given_up(waiting: tuple[Pair, dict[str, Any]]) -> None:
    pair, body = waiting
    half_way(pair, body)
    pair.source.stub.CancelMigration(pb.CancelMigrationRequest(uid=JOB), timeout=10)
    over = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert (over.move.failed, over.move.abort) == (True, "Succeeded")
    assert is_running(pair.source)
    eventually(lambda: not pair.target.stub.GetDomain(pb.GetDomainRequest()).HasField("domain"))
    migrate(pair, body)  # The same job is not tried again,
    with pytest.raises(grpc.RpcError) as call:
        pair.source.stub.CancelMigration(pb.CancelMigrationRequest(uid=JOB), timeout=10)
    assert call.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_move_that_takes_too_long_is_given_up(waiting: tuple[Pair, dict[str, Any]]) -> None:
    pair, body = waiting
    half_way(pair, body, completion_timeout_per_gib=1)
    over = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert "did not end within 1 s" in over.move.reason
    assert is_running(pair.source)


def test_a_guest_that_may_be_paused_is_paused_to_finish(waiting: tuple[Pair, dict[str, Any]]) -> None:
    pair, body = waiting
    on = half_way(pair, body, completion_timeout_per_gib=1, workload_disruption=True)
    pair.source.handler.wait_for(lambda d: d.move.mode == "Paused")
    on.set()
    over = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert over.move.mode == "Paused"


def test_the_daemon_dies_in_the_middle(waiting: tuple[Pair, dict[str, Any]]) -> None:
    pair, body = waiting
    half_way(pair, body)
    os.kill((pair.source.descendants("libvirtd") or pair.source.descendants("virtqemud"))[0], signal.SIGKILL)
    over = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert over.move.failed
    eventually(lambda: is_running(pair.source))


def test_memory_goes_by_several_connections(waiting: tuple[Pair, dict[str, Any]]) -> None:
    pair, body = waiting
    migrate(pair, body, parallel_connections=4)
    over = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert not over.move.failed, over.move.reason
    assert pair.cables[names.SOCKET_MOVE_MEMORY].ended >= 4
