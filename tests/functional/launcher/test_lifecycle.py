"""A real libvirt daemon and a real QEMU as uid 107: start, pause, end, and everything that can die in between."""

from __future__ import annotations

import json
import os
import signal

import grpc
import pytest

from tests.functional.launcher.sandbox import UID, Sandbox, eventually
from tests.functional.launcher.vmis import request, vmi
from virt_core.rpc.status import failure_of
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
Cache = list[pb.CacheFile]


@pytest.fixture
def running(box: Sandbox, capability_cache: Cache) -> Sandbox:
    box.serve_notify()
    box.start("--grace-period-seconds", "2")
    box.wait_ready()
    box.stub.SyncVMI(request(vmi(), capability_cache), timeout=30)
    return box


def state(box: Sandbox) -> int:
    return box.stub.GetDomain(pb.GetDomainRequest()).domain.state


def code_of(call: pytest.ExceptionInfo[grpc.RpcError]) -> grpc.StatusCode:
    return call.value.code()


def test_hello_names_the_vmi_and_the_version(running: Sandbox) -> None:
    answer = running.stub.Hello(pb.HelloRequest(versions=[1, 99]))
    assert (answer.version, answer.vmi_uid) == (1, UID)
    with pytest.raises(grpc.RpcError) as call:
        running.stub.Hello(pb.HelloRequest(versions=[99]))
    assert code_of(call) is grpc.StatusCode.FAILED_PRECONDITION


def test_sync_twice_starts_one_machine(running: Sandbox, capability_cache: Cache) -> None:
    first = running.qemu_pid
    answer = running.stub.SyncVMI(request(vmi(), capability_cache), timeout=30)
    assert answer.domain.state == pb.DOMAIN_STATE_RUNNING
    assert running.qemu_pid == first
    names = [handoff.name for handoff in answer.handoffs]
    times = [handoff.time_us for handoff in answer.handoffs]
    assert names == ["launcher-ready", "domain-defined", "guest-started"]
    assert times == sorted(times)


def test_virt_handler_is_told_only_real_states(running: Sandbox) -> None:
    running.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_RUNNING)
    assert {d.state for d in running.handler.domains} == {pb.DOMAIN_STATE_RUNNING}
    assert running.handler.domains[0].emulated


def test_pause_and_unpause(running: Sandbox) -> None:
    for _ in range(2):  # Twice is as good as once.
        running.stub.Pause(pb.PauseRequest())
    assert state(running) == pb.DOMAIN_STATE_PAUSED
    told = running.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_PAUSED)
    assert told.reason == "User"
    running.stub.Unpause(pb.UnpauseRequest())
    assert state(running) == pb.DOMAIN_STATE_RUNNING


def test_stats_are_json(running: Sandbox) -> None:
    stats = json.loads(running.stub.GetDomainStats(pb.GetDomainStatsRequest()).stats_json)
    assert stats["name"] == "ns_vm1"
    assert stats["cpu"]["time"] > 0
    assert len(stats["vcpu"]) == 1


def test_how_fast_a_guest_changes_its_memory_is_measured(running: Sandbox) -> None:
    """The firmware of a machine without a disk changes little; that it was measured is what counts."""
    rate = running.stub.GetDirtyRate(pb.GetDirtyRateRequest(), timeout=20).bytes_per_second
    assert rate % (1 << 20) == 0
    stats = json.loads(running.stub.GetDomainStats(pb.GetDomainStatsRequest()).stats_json)
    assert (stats["dirtyRate"]["calcStatus"], stats["dirtyRate"]["megabytesPerSecond"] << 20) == (2, rate)


def test_guest_info_without_an_agent_is_refused_with_a_reason(running: Sandbox) -> None:
    with pytest.raises(grpc.RpcError, match="no guest agent is connected") as call:
        running.stub.GetGuestInfo(pb.GetGuestInfoRequest())
    assert code_of(call) is grpc.StatusCode.FAILED_PRECONDITION


def test_kill_ends_the_machine_and_the_launcher_well(running: Sandbox) -> None:
    running.stub.Kill(pb.KillRequest())
    assert running.wait_exit(10) == 0, running.log.read_text()
    last = running.handler.domains[-1]
    assert (last.state, last.reason, last.message) == (pb.DOMAIN_STATE_SHUTOFF, "Destroyed", "")


def test_delete_is_refused_while_the_machine_runs(running: Sandbox) -> None:
    with pytest.raises(grpc.RpcError) as call:
        running.stub.Delete(pb.DeleteRequest())
    assert code_of(call) is grpc.StatusCode.FAILED_PRECONDITION


def test_qemu_killed_by_a_signal_is_told_truly(running: Sandbox) -> None:
    os.kill(running.qemu_pid, signal.SIGKILL)
    assert running.wait_exit(10) == 1
    last = running.handler.domains[-1]
    sentence = "QEMU was killed by signal 9 (SIGKILL)"
    assert (last.state, last.reason, last.message) == (pb.DOMAIN_STATE_SHUTOFF, "Crashed", sentence)
    lines = [json.loads(line) for line in running.log.read_text().splitlines()]
    assert sentence in [line["msg"] for line in lines if line["level"] == "error"]


def test_sigterm_without_a_machine_is_a_good_end(box: Sandbox) -> None:
    box.start()
    box.wait_ready()
    box.signal(signal.SIGTERM)
    assert box.wait_exit(5) == 0, box.log.read_text()


def test_sigterm_ends_a_guest_that_does_not_listen_after_the_grace(running: Sandbox) -> None:
    """Firmware without an operating system does not hear the power button."""
    running.signal(signal.SIGTERM)
    told = running.handler.wait_for(lambda d: d.graceful_shutdown_requested)
    assert told.state == pb.DOMAIN_STATE_RUNNING
    assert running.wait_exit(15) == 0, running.log.read_text()
    last = running.handler.domains[-1]
    assert (last.state, last.reason) == (pb.DOMAIN_STATE_SHUTOFF, "Destroyed")


def test_nobody_asks_for_a_machine(box: Sandbox) -> None:
    box.start("--qemu-timeout", "0.2")
    assert box.wait_exit(10) == 1
    assert "virt-handler asked for none" in box.log.read_text()


def test_a_target_waits_for_its_machine_and_ends_when_told(box: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    """No time limit: how long a move takes is for others to say. It never starts the guest a second time."""
    box.start("--qemu-timeout", "0.01", "--role", "target")
    box.wait_ready()
    with pytest.raises(grpc.RpcError) as caught:
        box.stub.SyncVMI(request(vmi(), capability_cache), timeout=30)
    assert failure_of(caught.value).code is grpc.StatusCode.FAILED_PRECONDITION
    assert "waits for a machine that is migrated to it" in failure_of(caught.value).message
    assert not box.descendants("qemu-system")
    box.stub.Delete(pb.DeleteRequest())
    assert box.wait_exit(10) == 0, box.log.read_text()


def test_a_dead_libvirt_daemon_comes_back_and_finds_its_qemu(running: Sandbox) -> None:
    qemu, daemon = running.qemu_pid, running.descendants("libvirtd")[0]
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: [p for p in running.descendants("libvirtd") if p != daemon], within_s=10)

    refused: list[grpc.StatusCode] = []

    def pauses() -> bool:
        try:
            running.stub.Pause(pb.PauseRequest())
        except grpc.RpcError as error:
            refused.append(error.code())
            return False
        return True

    eventually(pauses, within_s=15)
    assert set(refused) <= {grpc.StatusCode.UNAVAILABLE}
    assert running.qemu_pid == qemu
    running.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_PAUSED)


def test_qemu_and_its_daemon_die_together(running: Sandbox) -> None:
    qemu = running.qemu_pid
    os.kill(running.descendants("libvirtd")[0], signal.SIGKILL)
    os.kill(qemu, signal.SIGKILL)
    assert running.wait_exit(30) == 1
    last = running.handler.domains[-1]
    assert (last.state, last.message) == (pb.DOMAIN_STATE_SHUTOFF, "QEMU was killed by signal 9 (SIGKILL)")


def test_a_new_virt_handler_is_told_everything_again(running: Sandbox) -> None:
    running.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_RUNNING)
    running.stop_notify()
    running.stub.Pause(pb.PauseRequest())  # Nobody listens now.
    running.handler.requests.clear()
    running.serve_notify()
    running.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_PAUSED, 10)
    before = len(running.handler.requests)
    running.stop_notify()
    running.serve_notify()
    eventually(lambda: len(running.handler.requests) > before, within_s=10)
    sequences = [r.sequence for r in running.handler.requests]
    assert sequences == sorted(set(sequences))


def test_a_guest_that_starts_paused_waits(box: Sandbox, capability_cache: Cache) -> None:
    box.start()
    box.wait_ready()
    body = vmi()
    body["spec"]["startStrategy"] = "Paused"
    answer = box.stub.SyncVMI(request(body, capability_cache), timeout=30)
    assert answer.domain.state == pb.DOMAIN_STATE_PAUSED
    box.stub.Unpause(pb.UnpauseRequest())
    assert state(box) == pb.DOMAIN_STATE_RUNNING
