"""What the VMI's status says, and how often it is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from framework.vmis import NODE, handed_over

from virt_core.apis import handoffs
from virt_core.apis.base import from_plain
from virt_core.apis.netplan import NetReport, NetReportInterface
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import TopologyHints
from virt_core.kube.conditions import get_condition
from virt_core.kube.configvalues import host_architecture
from virt_core.kube.writes import difference
from virt_handler.decisions import agents, status
from virt_handler.decisions.domains import End
from virt_handler.decisions.vocabulary import Launcher, Step, Task, View, Work
from virt_protos.launcher.v1 import launcher_pb2 as pb

NOW = datetime(2026, 1, 1, 0, 0, 9, tzinfo=UTC)
REPORT = NetReport(
    interfaces=[
        NetReportInterface(
            name="default",
            tap="tap0",
            mac="02:AA:00:00:00:01",
            pod_ips=["10.1.2.3/24", "fd00::3"],
            pod_interface="eth0",
        )
    ]
)


def domain(**changes: Any) -> pb.Domain:
    values: dict[str, Any] = {
        "state": pb.DOMAIN_STATE_RUNNING,
        "machine_type": "pc-q35-7.2",
        "memory_bytes": 128 << 20,
        "disk_targets": {"root": "vda", "cloud": "vdb"},
        "interfaces": [pb.GuestInterface(name="default", mac="02:aa:00:00:00:01", from_domain=True)],
    }
    return pb.Domain(**(values | changes))


def view(**changes: Any) -> View:
    times = {kind.name: NOW - timedelta(seconds=8 - n) for n, kind in enumerate(handoffs.HANDOFFS[4:8])}
    values: dict[str, Any] = {
        "since": NOW,
        "launcher": Launcher.READY,
        "domain": domain(),
        "report": REPORT,
        "handoffs": times,
    }
    return View(**(values | changes))


def running(**changes: Any) -> VirtualMachineInstance:
    return status.reported(handed_over(), view(**changes), Step(), NOW)


def condition(vmi: VirtualMachineInstance, type: str) -> tuple[str, str] | None:
    found = get_condition(vmi.status.conditions, type)
    return (found.status, found.reason) if found else None


def test_running_is_one_write_with_everything() -> None:
    vmi = running()
    state = vmi.status
    assert state.phase == "Running"
    assert [s.phase for s in state.phase_transition_timestamps] == ["Pending", "Running"]
    assert [h.name for h in state.handoffs] == [
        "handed-over",
        "network-ready",
        "launcher-ready",
        "domain-defined",
        "guest-started",
        "running",
    ]
    assert condition(vmi, "Ready") == ("True", "")
    assert condition(vmi, "LiveMigratable") == ("True", "")
    assert [(v.name, v.target) for v in state.volume_status] == [("root", "vda")]  # The VMI has no other
    assert state.machine is not None
    assert state.machine.type == "pc-q35-7.2"
    assert state.memory is not None
    assert state.memory.guest_current == "128Mi"


def test_the_same_state_again_writes_nothing() -> None:
    """Whatever else comes in, however much later."""
    vmi = running()
    later = status.reported(vmi, view(), Step(), NOW + timedelta(hours=1))
    assert later is vmi
    assert not difference(vmi, later)


def test_input_stays_as_it_was() -> None:
    before = handed_over()
    status.reported(before, view(), Step(), NOW)
    assert before == handed_over()


def test_interface_has_the_pods_addresses_and_the_guests_mac() -> None:
    (nic,) = running().status.interfaces
    assert (nic.name, nic.mac) == ("default", "02:aa:00:00:00:01")
    assert (nic.ip_address, nic.ip_addresses) == ("10.1.2.3", ["10.1.2.3", "fd00::3"])
    assert (nic.info_source, nic.link_state, nic.pod_interface_name) == ("domain", "up", "eth0")


def test_addresses_survive_a_lost_report() -> None:
    vmi = running()
    assert status.reported(vmi, view(report=None), Step(), NOW).status.interfaces == vmi.status.interfaces


def agent_domain(**changes: Any) -> pb.Domain:
    nics = [
        pb.GuestInterface(
            name="default",
            mac="02:aa:00:00:00:01",
            guest_name="eth0",
            from_domain=True,
            from_agent=True,
            ip_addresses=["10.0.2.2"],
        ),
        pb.GuestInterface(
            mac="AA:00:00:00:00:99", guest_name="docker0", from_agent=True, ip_addresses=["172.17.0.1/16"]
        ),
    ]
    values: dict[str, Any] = {
        "agent_connected": True,
        "interfaces": nics,
        "os_info": pb.OSInfo(id="debian", name="Debian"),
    }
    return domain(**(values | changes))


def test_agent_is_one_more_write() -> None:
    vmi = status.reported(running(), view(domain=agent_domain(), agent_since=NOW), Step(), NOW)
    assert condition(vmi, "AgentConnected") == ("True", "")
    assert vmi.status.guest_os_info is not None
    assert vmi.status.guest_os_info.id == "debian"
    first, second = vmi.status.interfaces
    assert (first.info_source, first.interface_name, first.ip_address) == ("domain, guest-agent", "eth0", "10.1.2.3")
    assert (second.mac, second.ip_address, second.info_source) == ("aa:00:00:00:00:99", "172.17.0.1", "guest-agent")


def test_agent_that_has_not_told_yet_is_not_shown_for_a_while() -> None:
    silent = view(domain=agent_domain(os_info=pb.OSInfo()), agent_since=NOW)
    before = running()
    assert status.reported(before, silent, Step(), NOW) is before
    wait = status.agent_wait_s(silent, NOW)
    assert wait is not None
    assert 0 < wait <= 6
    late = NOW + timedelta(seconds=status.AGENT_SETTLE_S)
    assert condition(status.reported(before, silent, Step(), late), "AgentConnected") == ("True", "")
    assert status.agent_wait_s(silent, late) is None


def test_agent_that_left_is_taken_back() -> None:
    vmi = status.reported(running(), view(domain=agent_domain(), agent_since=NOW), Step(), NOW)
    gone = status.reported(vmi, view(), Step(), NOW)
    assert condition(gone, "AgentConnected") is None
    assert gone.status.guest_os_info is None


def test_guest_only_interfaces_are_limited() -> None:
    nics = [pb.GuestInterface(mac=f"aa:00:00:00:00:{n:02x}", from_agent=True) for n in range(60)]
    vmi = status.reported(running(), view(domain=agent_domain(interfaces=nics), agent_since=NOW), Step(), NOW)
    assert len(vmi.status.interfaces) == 11


def test_pause_and_resume() -> None:
    paused_domain = domain(state=pb.DOMAIN_STATE_PAUSED, reason="User")
    paused = status.reported(running(), view(domain=paused_domain), Step(), NOW)
    assert paused.status.phase == "Running"
    assert condition(paused, "Paused") == ("True", "PausedByUser")
    assert condition(paused, "Ready") == ("False", "PausedByUser")
    assert status.is_urgent(running(), paused)
    resumed = status.reported(paused, view(), Step(), NOW)
    assert condition(resumed, "Paused") is None
    assert condition(resumed, "Ready") == ("True", "")


def test_pause_by_io_error_is_named() -> None:
    broken = domain(state=pb.DOMAIN_STATE_PAUSED, reason="IOError", message="disk root: no space")
    vmi = status.reported(running(), view(domain=broken), Step(), NOW)
    assert condition(vmi, "Paused") == ("True", "PausedIOError")


def test_readiness_that_the_controller_took_is_not_given_back() -> None:
    vmi = handed_over("Running", status={"conditions": [{"type": "Ready", "status": "False", "reason": "PodNotReady"}]})
    assert condition(status.reported(vmi, view(), Step(), NOW), "Ready") == ("False", "PodNotReady")


def test_access_credentials_have_a_condition_and_events() -> None:
    def told(**fields: Any) -> VirtualMachineInstance:
        return status.reported(
            running(), view(domain=domain(access_credentials=pb.AccessCredentials(**fields))), Step(), NOW
        )

    assert condition(status.reported(running(), view(), Step(), NOW), "AccessCredentialsSynchronized") is None
    good, bad = told(synced=True), told(message="keys of 'web': no such user")
    assert condition(good, "AccessCredentialsSynchronized") == ("True", "")
    assert condition(bad, "AccessCredentialsSynchronized") == ("False", "AccessCredentialsSyncFailed")
    assert status.notes(running(), bad) == [("Warning", "AccessCredentialsSyncFailed", "keys of 'web': no such user")]
    assert [note[1] for note in status.notes(bad, good)] == ["AccessCredentialsSyncSuccess"]
    assert status.notes(good, good) == []


def test_a_guest_with_a_readiness_probe_is_not_ready_by_running() -> None:
    probed = handed_over("Scheduled", spec={"readinessProbe": {"tcpSocket": {"port": 22}}})
    begun = status.reported(probed, view(), Step(), NOW)
    assert begun.status.phase == "Running"
    assert condition(begun, "Ready") == ("False", "PodNotReady")
    halted = status.reported(begun, view(domain=domain(state=pb.DOMAIN_STATE_PAUSED, reason="User")), Step(), NOW)
    assert condition(halted, "Ready") == ("False", "PausedByUser")
    assert condition(status.reported(halted, view(), Step(), NOW), "Ready") == ("False", "PodNotReady")


def test_failure_has_phase_reason_condition_and_event() -> None:
    before = running()
    end = End("Failed", "LauncherFailed", "QEMU was killed by signal 9 (SIGKILL)")
    vmi = status.reported(before, view(), Step(end=end), NOW)
    assert (vmi.status.phase, vmi.status.reason) == ("Failed", "LauncherFailed")
    found = get_condition(vmi.status.conditions, "Synchronized")
    assert found is not None
    assert found.message == end.message
    assert condition(vmi, "Ready") == ("False", "GuestNotRunning")
    assert status.notes(before, vmi) == [("Warning", "LauncherFailed", end.message)]


def test_good_end() -> None:
    vmi = status.reported(running(), view(), Step(end=End("Succeeded")), NOW)
    assert vmi.status.phase == "Succeeded"
    assert condition(vmi, "Synchronized") is None
    assert status.notes(running(), vmi)[0][1] == "Stopped"


def test_nothing_is_written_after_the_end() -> None:
    over = handed_over("Failed")
    assert status.reported(over, view(), Step(end=End("Succeeded")), NOW) is over


def test_start_in_time_writes_nothing() -> None:
    before = handed_over()
    assert status.reported(before, view(domain=None), Step(), NOW) is before


def test_overdue_handoff_is_named_once() -> None:
    before = handed_over()
    late = Step(overdue=handoffs.LAUNCHER_READY)
    told = status.reported(before, view(domain=None), late, NOW)
    assert condition(told, "Synchronized") == ("False", "HandoffOverdue")
    assert status.notes(before, told)[0][:2] == ("Warning", "SyncFailed")
    assert status.reported(told, view(domain=None), late, NOW + timedelta(seconds=30)) is told
    assert condition(status.reported(told, view(), Step(), NOW), "Synchronized") is None


def test_error_of_an_attempt_is_told() -> None:
    failed = view(domain=None, sync=Work(Task.FAILED, error="QEMU did not start: no such file"))
    told = status.reported(handed_over(), failed, Step(), NOW)
    found = get_condition(told.status.conditions, "Synchronized")
    assert found is not None
    assert (found.reason, found.message) == ("SyncFailed", "QEMU did not start: no such file")
    assert "network-ready" in [h.name for h in told.status.handoffs], "the write also tells how far things have come"


def test_held_report_writes_nothing() -> None:
    before = handed_over()
    assert status.reported(before, view(), Step(hold=True), NOW) is before


def test_not_migratable_says_why() -> None:
    bridged = handed_over(spec={"domain": {"devices": {"interfaces": [{"name": "default", "bridge": {}}]}}})
    vmi = status.reported(bridged, view(), Step(), NOW)
    assert condition(vmi, "LiveMigratable") == ("False", "InterfaceNotLiveMigratable")


def test_a_guest_whose_counter_has_no_promised_pace_does_not_move() -> None:
    domain = {"features": {"hyperv": {"reenlightenment": {}}}, "devices": {}}
    for hints, said in ((None, ("False", "NoTSCFrequencyNotLiveMigratable")), ({"tscFrequency": 7}, ("True", ""))):
        vmi = handed_over(spec={"domain": domain, "networks": [], "volumes": []})
        vmi.status.topology_hints = from_plain(hints, TopologyHints) if hints else None
        assert condition(status.reported(vmi, view(), Step(), NOW), "LiveMigratable") == said


def test_a_guest_of_another_architecture_says_that_it_is_emulated() -> None:
    foreign = "arm64" if host_architecture() == "amd64" else "amd64"
    for wanted, said in ((foreign, ("True", "CrossArchitectureEmulation")), (host_architecture(), None), ("", None)):
        vmi = status.reported(handed_over(spec={"architecture": wanted}), view(), Step(), NOW)
        assert condition(vmi, "SoftwareEmulation") == said


@pytest.mark.parametrize(
    ("security", "architecture", "reason"),
    [
        ({"snp": {}}, "amd64", "SEVNotLiveMigratable"),
        ({"tdx": {}}, "", "TDXNotLiveMigratable"),
        ({}, "s390x", "SecureExecutionNotLiveMigratable"),
    ],
)
def test_memory_that_the_node_cannot_read_stays_where_it_is(
    security: dict[str, Any], architecture: str, reason: str
) -> None:
    hidden = handed_over(spec={"architecture": architecture, "domain": {"devices": {}, "launchSecurity": security}})
    assert condition(status.reported(hidden, view(), Step(), NOW), "LiveMigratable") == ("False", reason)


def test_a_machine_that_keeps_state_in_a_claim_stays_where_it_is() -> None:
    keeper = handed_over(spec={"domain": {"devices": {"tpm": {"persistent": True}}}})
    found = condition(status.reported(keeper, view(), Step(), NOW), "LiveMigratable")
    assert found == ("False", "DisksNotLiveMigratable")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("ReadWriteMany", ("True", "")), ("ReadWriteOnce", ("False", "DisksNotLiveMigratable"))],
)
def test_what_the_firmware_stored_moves_where_the_claim_is_everywhere(mode: str, expected: tuple[str, str]) -> None:
    firmware = {"bootloader": {"efi": {"persistent": True}}}
    claim = {"claimName": "state", "accessModes": [mode]}
    known = [{"name": "persistent-state-for-this-vm", "persistentVolumeClaimInfo": claim}]
    keeper = handed_over(spec={"domain": {"firmware": firmware, "devices": {}}}, status={"volumeStatus": known})
    assert condition(status.reported(keeper, view(), Step(), NOW), "LiveMigratable") == expected


def test_all_that_a_node_knows_of_hyper_v_ties_a_guest_to_it() -> None:
    tied = handed_over(spec={"domain": {"devices": {}, "features": {"hypervPassthrough": {"enabled": True}}}})
    found = condition(status.reported(tied, view(), Step(), NOW), "LiveMigratable")
    assert found == ("False", "HypervPassthroughNotLiveMigratable")


def test_what_a_guest_reserves_is_reserved_for_its_node() -> None:
    disks = [{"name": "shared", "lun": {"bus": "scsi", "reservation": True}}]
    holder = handed_over(spec={"domain": {"devices": {"disks": disks}}})
    found = condition(status.reported(holder, view(), Step(), NOW), "LiveMigratable")
    assert found == ("False", "PersistentReservationNotLiveMigratable")


def test_a_guest_that_sees_the_cells_of_its_node_stays_there() -> None:
    bound = handed_over(spec={"domain": {"devices": {}, "cpu": {"numa": {"guestMappingPassthrough": {}}}}})
    found = condition(status.reported(bound, view(), Step(), NOW), "LiveMigratable")
    assert found == ("False", "CPUModeLiveMigratable")


def test_a_disk_of_the_pod_moves_with_the_memory() -> None:
    vmi = running()
    assert condition(vmi, "LiveMigratable") == ("True", "")
    assert condition(vmi, "StorageLiveMigratable") == ("True", "")
    assert vmi.status.migration_method == "BlockMigration"


def test_node_name_is_left_alone() -> None:
    assert running().status.node_name == NODE


ALL_COMMANDS = [
    "guest-ping", "guest-get-time", "guest-info", "guest-shutdown", "guest-network-get-interfaces", "guest-get-fsinfo",
    "guest-get-host-name", "guest-get-users", "guest-get-timezone", "guest-get-osinfo",
]  # fmt: skip


def with_agent(commands: list[str], version: str = "", agents: tuple[str, ...] = ()) -> VirtualMachineInstance:
    connected = domain(agent_connected=True, agent_commands=commands, agent_version=version)
    return status.reported(handed_over(), view(domain=connected), Step(), NOW, agents)


def test_an_agent_that_lacks_a_command_is_told() -> None:
    assert get_condition(with_agent(ALL_COMMANDS).status.conditions, "AgentVersionNotSupported") is None
    lacking = with_agent(ALL_COMMANDS[1:])
    found = get_condition(lacking.status.conditions, "AgentVersionNotSupported")
    assert found is not None
    assert (found.status, found.message) == ("True", "the guest agent does not know guest-ping")
    assert condition(lacking, "AgentConnected")[0] == "True"


@pytest.mark.parametrize(("version", "supported"), [("2.11", True), ("9.1", False), ("", True)])
def test_an_agent_that_does_not_say_what_it_knows_is_judged_by_its_version(version: str, supported: bool) -> None:
    found = get_condition(with_agent([], version, ("^2.*", "(")).status.conditions, "AgentVersionNotSupported")
    assert (found is None) is supported


def test_credentials_need_commands_of_their_own() -> None:
    source = {"source": {"secret": {"secretName": "s"}}}
    password = {"userPassword": {**source, "propagationMethod": {"qemuGuestAgent": {}}}}
    keys = {"sshPublicKey": {**source, "propagationMethod": {"qemuGuestAgent": {"users": ["u"]}}}}
    files = ["guest-exec", "guest-exec-status", *(f"guest-file-{verb}" for verb in ("open", "close", "read", "write"))]
    cases = ((password, ["guest-set-user-password"]), (keys, files))
    for credential, needed in cases:
        vmi = handed_over(spec={"accessCredentials": [credential]})
        assert agents.unsupported(vmi, pb.Domain(agent_commands=ALL_COMMANDS), ())
        assert not agents.unsupported(vmi, pb.Domain(agent_commands=[*ALL_COMMANDS, *needed]), ())


def test_a_claim_for_one_node_ties_the_guest_to_it() -> None:
    spec = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}
    for mode, said in (("ReadWriteOnce", ("False", "DisksNotLiveMigratable")), ("ReadWriteMany", ("True", ""))):
        known = [{"name": "d", "persistentVolumeClaimInfo": {"claimName": "c", "accessModes": [mode]}}]
        vmi = status.reported(handed_over(spec=spec, status={"volumeStatus": known}), view(), Step(), NOW)
        assert condition(vmi, "LiveMigratable") == said
        assert vmi.status.volume_status[0].persistent_volume_claim_info is not None


def test_a_silent_guest_is_told_of_and_stays_ready() -> None:
    """It may be well: a guest without a driver for its card, or one that needs no network."""
    before = running()
    silence = pb.Silence(reason="NoLease", message="it has taken no lease")
    after = status.reported(before, view(domain=domain(silence=silence)), Step(), NOW)
    told = get_condition(after.status.conditions, "GuestSilent")
    assert told is not None
    assert (told.status, told.reason, told.message) == ("True", "NoLease", "it has taken no lease")
    ready = get_condition(after.status.conditions, "Ready")
    assert ready is not None
    assert ready.status == "True"
    assert status.notes(before, after) == [("Warning", "GuestSilent", "it has taken no lease")]
    heard = status.reported(after, view(), Step(), NOW)
    assert get_condition(heard.status.conditions, "GuestSilent") is None
    assert status.notes(after, heard) == []


def test_a_launcher_cannot_make_up_a_silence() -> None:
    silence = pb.Silence(reason="Made" * 1000, message="x" * 100_000)
    after = status.reported(running(), view(domain=domain(silence=silence)), Step(), NOW)
    assert get_condition(after.status.conditions, "GuestSilent") is None
