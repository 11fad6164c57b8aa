"""setup, check and teardown as a whole, on the kernel in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from virt_core.apis.base import to_plain
from virt_core.apis.netplan import NetPlanInterface
from virt_netsetup import actions
from virt_netsetup.model import NetsetupError

from .conftest import ADDRESSES, Pod, make_pod

BINDINGS = ["masquerade", "bridge"]


def count_changes(pod: Pod, binding: str) -> int:
    actions.setup(pod.plan(binding), pod.world, pod.state)
    return pod.failing.calls


@pytest.mark.parametrize("binding", BINDINGS)
def test_second_setup_reports_the_same_and_changes_nothing(pod: Pod, binding: str) -> None:
    first = actions.setup(pod.plan(binding), pod.world, pod.state)
    wired, calls = pod.snapshot(), pod.failing.calls
    second = actions.setup(pod.plan(binding), pod.world, pod.state)
    assert to_plain(second) == to_plain(first)
    assert (pod.snapshot(), pod.failing.calls) == (wired, calls)
    assert to_plain(actions.check(pod.plan(binding), pod.world, pod.state)) == to_plain(first)


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_failure_at_any_change_is_undone(tmp_path: Path, binding: str) -> None:
    """Each call that changes something fails once; each time everything is as before, and the next run succeeds."""
    total = count_changes(make_pod(tmp_path / "count"), binding)
    assert total > 10
    for number in range(1, total + 1):
        pod = make_pod(tmp_path / str(number))
        before = pod.snapshot()
        pod.failing.fail_at = number
        with pytest.raises(NetsetupError, match="injected failure"):
            actions.setup(pod.plan(binding), pod.world, pod.state)
        assert pod.snapshot() == before, f"after a failure at change {number}"
        assert list(pod.state.all()) == []
        actions.setup(pod.plan(binding), pod.world, pod.state)


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_killed_run_is_completed_by_the_next(tmp_path: Path, binding: str) -> None:
    """Nothing is undone when the process is killed; the record from before the first change lets the next run go on."""
    whole = make_pod(tmp_path / "whole")
    total = count_changes(whole, binding)
    for number in range(1, total + 1):
        pod = make_pod(tmp_path / str(number))
        kill_at(pod, number, binding)
        actions.setup(pod.plan(binding), pod.world, pod.state)
        assert pod.snapshot() == whole.snapshot(), f"killed at change {number}"


def kill_at(pod: Pod, number: int, binding: str) -> None:
    class Killed(BaseException):
        pass

    def changed(what: str) -> None:
        pod.failing.calls += 1
        if pod.failing.calls == number:
            raise Killed(what)

    pod.failing.changed = changed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        actions.setup(pod.plan(binding), pod.world, pod.state)
    del pod.failing.changed


@pytest.mark.parametrize("binding", BINDINGS)
def test_teardown_leaves_the_pod_as_it_was(pod: Pod, binding: str) -> None:
    before = pod.snapshot()
    actions.setup(pod.plan(binding), pod.world, pod.state)
    assert pod.snapshot() != before
    actions.teardown(pod.world, pod.state)
    assert pod.snapshot() == before
    assert not pod.state.directory.exists()
    actions.teardown(pod.world, pod.state)


def test_second_interface_that_fails_takes_the_first_one_back(pod: Pod) -> None:
    before = pod.snapshot()
    plan = pod.plan("masquerade")
    plan.interfaces.append(NetPlanInterface(name="other", binding="bridge", pod_interface="pod1234"))
    with pytest.raises(NetsetupError, match="no interface pod1234"):
        actions.setup(plan, pod.world, pod.state)
    assert pod.snapshot() == before


def test_two_interfaces(pod: Pod) -> None:
    pod.kernel.plug("pod37a8eec1ce1", "0a:58:0a:01:00:05", 1500, [], [])
    plan = pod.plan("masquerade")
    plan.interfaces.append(NetPlanInterface(name="other", binding="bridge", pod_interface="pod37a8eec1ce1"))
    report = actions.setup(plan, pod.world, pod.state)
    assert [(nic.tap, nic.bridge) for nic in report.interfaces] == [
        ("tap0", "k6t-eth0"),
        ("tap37a8eec1ce1", "k6t-37a8eec1ce1"),
    ]
    assert "37a8eec1ce1-nic" in {link.name for link in pod.kernel.links()}
    # A NIC without an IPv4 address has nothing for DHCP to hand out.
    assert set(pod.dhcp.servers) == {"eth0"}


def test_masquerade_comes_first_wherever_the_plan_has_it(pod: Pod) -> None:
    """It makes the Pod a router for all links that there are; those that must not be one are told after it."""
    pod.kernel.plug("pod37a8eec1ce1", "0a:58:0a:01:00:05", 1500, [], [])
    plan = pod.plan("masquerade")
    plan.interfaces.insert(0, NetPlanInterface(name="other", binding="bridge", pod_interface="pod37a8eec1ce1"))
    report = actions.setup(plan, pod.world, pod.state)
    assert [nic.name for nic in report.interfaces] == ["other", "default"], "told as asked"
    made = [link.name for link in pod.kernel.links() if link.kind == "bridge"]
    assert made == ["k6t-eth0", "k6t-37a8eec1ce1"]
    assert pod.kernel.read_sysctl("net/ipv4/conf/k6t-37a8eec1ce1/forwarding") == "0"


def test_what_the_plan_does_not_name_is_taken_down(pod: Pod) -> None:
    actions.setup(pod.plan("masquerade"), pod.world, pod.state)
    pod.kernel.plug("pod37a8eec1ce1", "0a:58:0a:01:00:05", 1500, [ADDRESSES[0]], [])
    alone = pod.snapshot()
    plan = pod.plan("masquerade")
    plan.interfaces.append(NetPlanInterface(name="other", binding="bridge", pod_interface="pod37a8eec1ce1"))
    actions.setup(plan, pod.world, pod.state)
    assert pod.snapshot() != alone
    actions.setup(pod.plan("masquerade"), pod.world, pod.state)
    assert pod.snapshot() == alone
    assert [record.nic.name for record in pod.state.all()] == ["eth0"]


def test_check_names_what_is_missing(pod: Pod) -> None:
    with pytest.raises(NetsetupError, match="never set up"):
        actions.check(pod.plan("masquerade"), pod.world, pod.state)
    actions.setup(pod.plan("masquerade"), pod.world, pod.state)
    pod.dhcp.servers.clear()
    with pytest.raises(NetsetupError, match="not in place") as caught:
        actions.check(pod.plan("masquerade"), pod.world, pod.state)
    assert caught.value.step == "StartDhcp"


def test_record_of_another_pod_is_dropped(pod: Pod, tmp_path: Path) -> None:
    """The same VMI on the same node in a new Pod: the old record speaks of a namespace that is no more."""
    actions.setup(pod.plan("bridge"), pod.world, pod.state)
    other = make_pod(tmp_path / "other", [ADDRESSES[0]])
    world = type(pod.world)(other.kernel, other.world.firewall, other.dhcp, namespace=8)
    report = actions.setup(pod.plan("masquerade"), world, pod.state)
    assert report.interfaces[0].guest_ips == ["10.0.2.2"]
    assert [record.namespace for record in pod.state.all()] == [8]


def test_another_binding_for_the_same_nic_is_refused(pod: Pod) -> None:
    actions.setup(pod.plan("masquerade"), pod.world, pod.state)
    with pytest.raises(NetsetupError, match="already wired as masquerade"):
        actions.setup(pod.plan("bridge"), pod.world, pod.state)
    assert set(pod.dhcp.servers) == {"eth0"}


def test_changed_ports_replace_the_rules(pod: Pod) -> None:
    from virt_core.apis.netplan import NetPort

    actions.setup(pod.plan("masquerade", ports=[NetPort(port=80)]), pod.world, pod.state)
    calls = pod.failing.calls
    actions.setup(pod.plan("masquerade", ports=[NetPort(port=81)]), pod.world, pod.state)
    assert pod.failing.calls == calls + 1, "in one transaction"


def test_a_failed_undo_is_reported_and_keeps_the_record(pod: Pod) -> None:
    """Without the record nobody could take the rest down later."""
    total = count_changes(make_pod(pod.state.directory.parent / "count"), "bridge")

    def changed(what: str) -> None:
        pod.failing.calls += 1
        if pod.failing.calls >= total:
            raise OSError(5, "injected failure")

    pod.failing.changed = changed  # type: ignore[method-assign]
    with pytest.raises(NetsetupError, match="undoing it failed too") as caught:
        actions.setup(pod.plan("bridge"), pod.world, pod.state)
    assert caught.value.critical
    assert len(list(pod.state.all())) == 1


def test_kernel_without_dummies(tmp_path: Path) -> None:
    pod = make_pod(tmp_path, kinds=("bridge",))
    before = pod.snapshot()
    actions.setup(pod.plan("bridge"), pod.world, pod.state)
    assert next(link.kind for link in pod.kernel.links() if link.name == "eth0") == "bridge"
    actions.teardown(pod.world, pod.state)
    assert pod.snapshot() == before


def test_without_a_namespace_only_the_server_is_stopped(pod: Pod) -> None:
    actions.setup(pod.plan("masquerade"), pod.world, pod.state)
    actions.teardown_without_namespace(pod.dhcp, pod.state)
    assert pod.dhcp.servers == {}
    assert not pod.state.directory.exists()
