"""The small parts: records, limits, bounds, the network plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework.vmis import POD_UID, UID, handed_over, vmi

from virt_core.apis.netplan import NetReport, NetReportInterface
from virt_core.runtime.clock import FakeClock
from virt_handler.decisions.domains import bounded, newest
from virt_handler.decisions.limits import TokenBucket, clip
from virt_handler.decisions.vocabulary import Task
from virt_handler.loop.records import GhostRecord, NetworkRecord, RecordStore
from virt_handler.loop.sessions import Session, Sessions
from virt_handler.pods import network
from virt_handler.pods.files import UnsafeFileError, checked_name
from virt_handler.pods.resolver import Resolver
from virt_protos.launcher.v1 import launcher_pb2 as pb

GHOST = GhostRecord(vmi_uid=UID, namespace="default", name="vm", pod_uid=POD_UID, grace_seconds=7)


def session(clock: FakeClock | None = None) -> Session:
    return Session(GHOST, clock or FakeClock())


def test_records_come_back_after_a_restart(tmp_path: Path) -> None:
    RecordStore(str(tmp_path), GhostRecord).put(UID, GHOST)
    again = RecordStore(str(tmp_path), GhostRecord)
    assert list(again.all()) == [GHOST]
    assert (tmp_path / f"{UID}.json").stat().st_mode & 0o777 == 0o600
    again.delete(UID)
    again.delete(UID)
    assert again.get(UID) is None


def test_a_torn_record_is_none(tmp_path: Path) -> None:
    (tmp_path / f"{UID}.json").write_text('{"vmiUid": "x"')
    store = RecordStore(str(tmp_path), GhostRecord)
    assert list(store.all()) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "x" * 300])
def test_names_that_are_no_plain_segments_are_refused(name: str) -> None:
    with pytest.raises(UnsafeFileError):
        checked_name(name)


def test_bucket_allows_a_burst_then_a_rate() -> None:
    clock = FakeClock()
    bucket = TokenBucket(clock, burst=3, per_second=2.0)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.step(0.5)
    assert [bucket.take() for _ in range(2)] == [True, False]


def test_text_of_a_guest_is_clipped_and_clean() -> None:
    assert clip("a\x1b[31mb\n", 100) == "a [31mb "
    assert len(clip("x" * 5000)) == 1024


def test_what_a_guest_tells_is_bounded() -> None:
    nic = pb.GuestInterface(guest_name="e" * 999, ip_addresses=[f"10.0.0.{n}" for n in range(200)])
    huge = pb.Domain(interfaces=[nic] * 500, os_info=pb.OSInfo(name="n" * 9999), message="m" * 9999)
    small = bounded(huge)
    assert len(small.interfaces) == 64
    assert len(small.interfaces[0].ip_addresses) == 32
    assert small.ByteSize() < 64 * 1024 * 2
    assert len(small.os_info.name) == 253
    assert len(huge.interfaces) == 500, "the original is not changed"


def test_an_end_is_never_taken_back() -> None:
    over = pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason="Shutdown")
    assert newest(over, pb.Domain(state=pb.DOMAIN_STATE_RUNNING)) is over
    assert newest(None, over) is over


def test_old_messages_and_stale_answers_are_dropped() -> None:
    one = session()
    paused, runs = pb.Domain(state=pb.DOMAIN_STATE_PAUSED), pb.Domain(state=pb.DOMAIN_STATE_RUNNING)
    asked_at = one.version()
    assert one.domain_told(paused, 5)
    assert not one.domain_told(runs, 5)
    assert not one.domain_told(runs, 4)
    one.domain_read(runs, asked_at)
    assert one.view().domain == paused
    one.domain_read(runs, one.version())
    assert one.view().domain == runs


def test_retries_grow_and_keep_the_first_start() -> None:
    clock = FakeClock()
    one = session(clock)
    one.sync_started()
    started = one.view().sync.started
    one.sync_failed("a", fatal=False)
    clock.step(10)
    one.sync_started()
    one.sync_failed("b", fatal=False)
    work = one.view().sync
    assert (work.task, work.started, work.error) == (Task.FAILED, started, "b")
    assert work.retry_at is not None
    assert (work.retry_at - clock.now()).total_seconds() == 1.0


def test_handoffs_of_the_launcher_are_believed_within_reason() -> None:
    clock = FakeClock()
    one = session(clock)
    good = int(clock.now().timestamp() * 1e6) - 5_000_000
    response = pb.SyncVMIResponse(
        domain=pb.Domain(state=pb.DOMAIN_STATE_RUNNING),
        handoffs=[pb.Handoff(name="domain-defined", time_us=good), pb.Handoff(name="guest-started", time_us=2**62)],
    )
    one.sync_done(response, one.version())
    times = one.view().handoffs
    assert (clock.now() - times["domain-defined"]).total_seconds() == 5
    assert times["guest-started"] == clock.now()


def test_sessions_by_key() -> None:
    sessions = Sessions()
    sessions.add(session())
    assert [s.vmi_uid for s in sessions.of_key("default/vm")] == [UID]
    assert sessions.of_key("default/other") == []
    assert sessions.remove(UID) is not None
    assert list(sessions) == []


def test_plan_follows_the_spec() -> None:
    spec = {
        "hostname": "web",
        "domain": {
            "cpu": {"cores": 2, "sockets": 2},
            "devices": {
                "networkInterfaceMultiqueue": True,
                "interfaces": [
                    {
                        "name": "default",
                        "masquerade": {},
                        "macAddress": "02:00:00:00:00:09",
                        "ports": [{"port": 80}],
                        "dhcpOptions": {"bootFileName": "b", "privateOptions": [{"option": 240, "value": "v"}]},
                    },
                    {"name": "gone", "bridge": {}, "state": "absent"},
                ],
            },
        },
        "networks": [{"name": "default", "pod": {"vmNetworkCIDR": "10.9.0.0/24"}}],
    }
    plan = network.plan(vmi(spec=spec), 42, "/proc/self/fd/9", "/state", Resolver(("1.1.1.1",), ("example",)))
    assert (plan.vmi_uid, plan.pod_pid, plan.netns_path, plan.launcher_uid) == (UID, 42, "/proc/self/fd/9", 107)
    (nic,) = plan.interfaces
    assert (nic.binding, nic.mac, nic.vm_network_cidr, nic.queues) == (
        "masquerade",
        "02:00:00:00:00:09",
        "10.9.0.0/24",
        4,
    )
    assert [(p.port, p.protocol) for p in nic.ports] == [(80, "TCP")]
    assert (nic.hostname, nic.dns_servers, nic.search_domains) == ("web", ["1.1.1.1"], ["example"])
    assert nic.dhcp_options is not None
    assert nic.dhcp_options.private_options[0].option == 240


@pytest.mark.parametrize(
    ("nic", "net"),
    [({"sriov": {}}, {"pod": {}}), ({"bridge": {}}, {"multus": {"networkName": "n"}}), ({"masquerade": {}}, None)],
)
def test_what_can_not_be_wired_is_fatal(nic: dict[str, object], net: dict[str, object] | None) -> None:
    spec = {
        "domain": {"devices": {"interfaces": [{"name": "default"} | nic]}},
        "networks": [{"name": "default"} | net] if net else [],
    }
    with pytest.raises(network.NetworkError, match='"default"') as caught:
        network.plan(vmi(spec=spec), 1, "", "")
    assert caught.value.fatal


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "netsetup"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return [str(path)]


def test_report_of_the_program_is_read(tmp_path: Path) -> None:
    command = script(tmp_path, """cat >/dev/null; echo '{"interfaces":[{"name":"default","tap":"tap0"}]}'""")
    report = network.run(command, network.plan(vmi(), 1, "", ""))
    assert report == NetReport(interfaces=[NetReportInterface(name="default", tap="tap0")])


@pytest.mark.parametrize(
    ("text", "words", "fatal"),
    [
        ("""echo '{"error":{"step":"nat","message":"no nft","critical":true}}'; exit 1""", "nat: no nft", True),
        ("echo boom >&2; exit 3", "ended with code 3: boom", False),
        ("echo '{}'; exit 4", "ended with code 4", False),
    ],
)
def test_failures_of_the_program_are_told(tmp_path: Path, text: str, words: str, fatal: bool) -> None:
    with pytest.raises(network.NetworkError, match=words) as caught:
        network.run(script(tmp_path, text), network.plan(vmi(), 1, "", ""))
    assert caught.value.fatal is fatal


def test_absent_program_is_named() -> None:
    with pytest.raises(network.NetworkError, match="no-such-program is not installed"):
        network.run(["no-such-program"], network.plan(vmi(), 1, "", ""))


def test_wiring_remembers_for_the_same_pod_only(tmp_path: Path) -> None:
    store = RecordStore(str(tmp_path / "net"), NetworkRecord)
    wiring = network.NetworkWiring(["x"], str(tmp_path), store, FakeClock(), lambda _s: None)
    record = NetworkRecord(pod_uid=POD_UID, report=NetReport(), time="2026-01-01T00:00:01.000000Z")
    store.put(UID, record)
    one = session()
    assert wiring.recall(one)
    assert one.view().network.task is Task.DONE
    store.put(UID, NetworkRecord(pod_uid="other", report=NetReport()))
    assert not wiring.recall(session())
    (tmp_path / UID).mkdir()
    wiring.forget(UID)
    assert store.get(UID) is None
    assert not (tmp_path / UID).exists()
    wiring.close()


def test_vmi_without_nics_needs_no_program(tmp_path: Path) -> None:
    store = RecordStore(str(tmp_path), NetworkRecord)
    woken: list[Session] = []
    wiring = network.NetworkWiring(["no-such-program"], str(tmp_path), store, FakeClock(), woken.append)
    one = session()
    wiring.start(one, handed_over(spec={"domain": {"devices": {}}}))
    assert one.view().network.task is Task.DONE
    assert woken == [one]
    wiring.close()
