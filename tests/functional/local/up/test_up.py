"""`virt-local` as a whole, with real processes, namespaces and Pods, but without Virtpod's own components."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from virt_local.up import links
from virt_local.up.links import Address, Layout, Veth

from .rig import BIN, HOST_IMAGE, Rig, eventually

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    made = Rig("lfn", 222, nodes=2)
    try:
        done = made.up()
        assert done.returncode == 0, done.stderr
        yield made
    finally:
        done = made.local("down", "--purge", "--grace", "10")
        left = made.leftovers()
        shutil.rmtree(made.data, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    assert left == []


def test_everything_is_ready(rig: Rig) -> None:
    status = rig.status()
    assert status["ready"]
    assert sorted(rig.pids()) == ["apiserver", "controllers", "node@node1", "node@node2"]
    assert rig.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}") == "node1 node2"
    assert rig.local("status", "--quiet").returncode == 0
    assert rig.local("kubeconfig").stdout.strip() == rig.env["KUBECONFIG"]


def test_its_name_is_enough(rig: Rig) -> None:
    """It lives in a directory of its own, which nobody has to repeat."""
    env = {name: value for name, value in rig.env.items() if not name.startswith("VIRT_LOCAL_")}
    for words in (("status", "--quiet"), ("logs", "node@node2"), ("image", "list")):
        command = [str(BIN / "virt-local"), *words, "--instance", rig.name]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
    command = [str(BIN / "virt-local"), "kubeconfig", "--instance", rig.name]
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == rig.env["KUBECONFIG"]


def test_a_second_up_says_so(rig: Rig) -> None:
    done = rig.up()
    assert done.returncode == 3
    assert "already running" in done.stderr
    assert "virt-local down" in done.stderr
    assert done.stderr.count("\n") == 1


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}


def test_a_claim_shows_its_class_and_why_it_is_pending(rig: Rig) -> None:
    rig.kubectl("apply", "-f", "-", stdin=json.dumps(CLAIM))
    assert eventually(lambda: re.search(r"data +Bound .* hostpath ", rig.kubectl("get", "pvc", "data")))
    lost = {**CLAIM, "metadata": {"name": "lost"}, "spec": {**CLAIM["spec"], "storageClassName": "none"}}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps(lost))
    eventually(lambda: 'storageclass.storage.k8s.io "none" not found' in rig.kubectl("describe", "pvc", "lost"))
    rig.kubectl("delete", "pvc", "data", "lost")


def test_pods_spread_over_the_nodes_and_reach_each_other(rig: Rig) -> None:
    serve = "exec python3 -m http.server 8000 --bind ::"
    rig.run_pod("one", serve)
    rig.run_pod("two", serve)
    nodes = rig.kubectl("get", "pods", "one", "two", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    assert sorted(nodes) == ["node1", "node2"]
    address = rig.kubectl("get", "pod", "two", "-o", "jsonpath={.status.podIP}")
    fetch = f"import urllib.request as u; print(u.urlopen('http://{address}:8000', timeout=5).status)"
    eventually(lambda: _fetches(rig, fetch))
    with socket.create_connection((address, 8000), timeout=5):
        pass


def _fetches(rig: Rig, code: str) -> bool:
    try:
        return rig.kubectl("exec", "one", "--", "python3", "-c", code).strip() == "200"
    except AssertionError:
        return False


@pytest.fixture
def outside() -> Iterator[str]:
    """A network beyond this machine that knows the machine, but no Pod."""
    name = "lfn-outside"
    links.ensure_namespace(name)
    try:
        here = Layout(
            veths=(Veth("lfx0", "eth0", name),),
            addresses=(Address("lfx0", "198.51.100.1/30"), Address("lfx0", "fd00:77::1/64")),
        )
        there = Layout(addresses=(Address("eth0", "198.51.100.2/30"), Address("eth0", "fd00:77::2/64")), up=("eth0",))
        links.establish(here)
        links.in_namespace(name, lambda: [links.establish(there)])
        yield name
    finally:
        links.remove_namespace(name)
        links.remove("lfx0")


@pytest.mark.parametrize(("address", "seen"), [("198.51.100.2", "198.51.100.1"), ("fd00:77::2", "fd00:77::1")])
def test_pods_reach_the_outside_under_the_machines_address(rig: Rig, outside: str, address: str, seen: str) -> None:
    pod = f"out-{'six' if ':' in address else 'four'}"
    rig.run_pod(pod, "exec sleep 600")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = links.in_namespace(outside, lambda: socket.create_server((address, 7000), family=family))
    server.settimeout(10)
    with server:
        code = f"import socket; print(socket.create_connection(('{address}', 7000), 5).recv(9).decode())"
        command = ["kubectl", "exec", pod, "--", "python3", "-c", code]
        with subprocess.Popen(command, env=rig.env, stdout=subprocess.PIPE, text=True) as client:
            connection, peer = server.accept()
            with connection:
                connection.sendall(b"hello")
            said, _ = client.communicate(timeout=20)
    assert (peer[0], said.strip()) == (seen, "hello")
    rig.kubectl("delete", "pod", pod)


#: Prints which of the places answer.
TRY = """
import socket, sys
for place in sys.argv[1:]:
    address, port = place.rsplit("-", 1)
    try:
        socket.create_connection((address, int(port)), 2).close()
        print(place)
    except OSError:
        pass
"""


def reachable(rig: Rig, pod: str, *places: str) -> list[str]:
    return rig.kubectl("exec", pod, "--", "python3", "-c", TRY, *places).split()


@pytest.fixture
def listeners() -> Iterator[int]:
    """A port that this machine offers to everybody, as careless programs do."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        yield int(server.getsockname()[1])


def test_pods_do_not_reach_the_machine(rig: Rig, listeners: int, outside: str) -> None:
    """Neither by the address of its bridge nor by others, nor what serves the node; names and the way out are open."""
    rig.run_pod("inside", "exec sleep 600")
    closed = [f"{address}-{listeners}" for address in ("10.222.0.1", "fd00:10:222::1", "198.51.100.1", "fd00:77::1")]
    closed += [f"10.222.0.1-{rig.port}", "10.222.0.11-10250", "10.222.0.12-10250", "10.222.101.1-10250"]
    assert reachable(rig, "inside", *closed) == []
    beyond = links.in_namespace(outside, lambda: socket.create_server(("198.51.100.2", 7001)))
    with beyond, socket.create_server(("10.222.0.1", 53)):
        assert reachable(rig, "inside", "10.222.0.1-53", "198.51.100.2-7001") == ["10.222.0.1-53", "198.51.100.2-7001"]
    with socket.create_connection(("10.222.0.11", 10250), timeout=5):
        pass
    rig.kubectl("delete", "pod", "inside")


def test_instances_do_not_meet_and_one_can_be_opened(rig: Rig, listeners: int) -> None:
    other = Rig("lfo", 223)
    try:
        done = other.up("--guests-reach-host")
        assert done.returncode == 0, done.stderr
        serve = "exec python3 -m http.server 8000 --bind ::"
        for each in (rig, other):
            each.run_pod("meet", serve)
        theirs, ours = (
            [
                f"{ip['ip']}-8000"
                for ip in json.loads(each.kubectl("get", "pod", "meet", "-o", "json"))["status"]["podIPs"]
            ]
            for each in (other, rig)
        )
        for place in (*theirs, *ours):
            eventually(lambda place=place: socket.create_connection(place.rsplit("-", 1), 5).close() is None)
        assert reachable(rig, "meet", *theirs) == []
        assert reachable(other, "meet", *ours) == []
        assert reachable(other, "meet", f"10.223.0.1-{listeners}") == [f"10.223.0.1-{listeners}"]
        assert reachable(other, "meet", "10.223.0.11-10250") == [], "what serves the node is never open"
        rig.kubectl("delete", "pod", "meet")
    finally:
        done = other.local("down", "--purge", "--grace", "10")
        left = other.leftovers()
        shutil.rmtree(other.data, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    assert left == []


def test_a_killed_component_comes_back_and_pods_stay(rig: Rig) -> None:
    rig.run_pod("steady", "echo started; exec sleep 600")
    before = rig.pids()
    for component in ("apiserver", "controllers", "node@node1", "node@node2"):
        os.kill(before[component], signal.SIGKILL)
    eventually(lambda: all(pid and pid != before[name] for name, pid in rig.pids().items()))
    eventually(lambda: rig.status()["ready"])
    restarts = {row["name"]: row["restarts"] for row in rig.status()["components"]}
    assert restarts == dict.fromkeys(before, 1)
    assert rig.kubectl("logs", "steady").splitlines() == ["started"]


def test_a_new_supervisor_takes_over_from_a_killed_one(rig: Rig) -> None:
    """The Pod neither restarts nor notices; the old components are gone."""
    rig.run_pod("survivor", "echo $$; while :; do sleep 0.2; done")
    before = rig.pids()
    os.kill(rig.supervisor(), signal.SIGKILL)
    eventually(lambda: not rig.status()["running"])
    assert rig.local("status").returncode == 1
    done = rig.up()
    assert done.returncode == 0, done.stderr
    assert "taking over" in done.stderr
    assert not set(before.values()) & set(rig.pids().values())
    restarts = rig.kubectl("get", "pod", "survivor", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
    assert restarts == "0"
    assert len(rig.kubectl("logs", "survivor").splitlines()) == 1


def test_logs_by_component(rig: Rig) -> None:
    assert "serving" in rig.local("logs", "apiserver").stdout
    done = rig.local("logs", "node")
    assert done.returncode == 2
    assert "node@node1, node@node2" in done.stderr


def test_a_taken_port_is_said() -> None:
    made = Rig("lfp", 223)
    try:
        with socket.create_server(("127.0.0.1", made.port)):
            done = made.up()
        assert done.returncode == 2
        assert f"Port {made.port}" in done.stderr
        assert done.stderr.count("\n") == 1
        assert "--port" in done.stderr
        assert made.leftovers() == []
    finally:
        shutil.rmtree(made.data, ignore_errors=True)


def test_down_lets_a_pod_end_in_its_own_time() -> None:
    """It says goodbye when it has what it waits for, which a kill would not let it; then the node takes Pods again."""
    made = Rig("lfg", 227)
    goodbye = made.data / "goodbye"
    try:
        assert made.up().returncode == 0
        script = f"trap 'while [ ! -e {goodbye}/go ]; do sleep 0.1; done; touch {goodbye}/said; exit 0' TERM; "
        goodbye.mkdir()
        mount = {"name": "c", "image": HOST_IMAGE, "command": ["sh", "-c", f"{script} while :; do sleep 0.1; done"]}
        mount["volumeMounts"] = [{"name": "here", "mountPath": str(goodbye)}]
        here = [{"name": "here", "hostPath": {"path": str(goodbye)}}]
        made.run_pod("slow", "", containers=[mount], volumes=here, terminationGracePeriodSeconds=300)
        down = subprocess.Popen([str(BIN / "virt-local"), "down"], env=made.env, stderr=subprocess.PIPE, text=True)
        assert down.stderr is not None
        assert "ending Pod default/slow: waiting up to 330 s" in down.stderr.readline()
        eventually(lambda: "true" in made.kubectl("get", "node", "node1", "-o", "jsonpath={.spec.unschedulable}"))
        (goodbye / "go").touch()
        assert down.wait(60) == 0, down.stderr.read()
        assert "killing" not in down.stderr.read()
        assert (goodbye / "said").exists()
        assert made.up().returncode == 0
        made.run_pod("after", "exec sleep 600", terminationGracePeriodSeconds=0)
    finally:
        made.local("down", "--purge", "--grace", "5")
        left = made.leftovers()
        shutil.rmtree(made.data, ignore_errors=True)
    assert left == []


def test_down_after_a_crash_of_everything_cleans_too() -> None:
    made = Rig("lfc", 224)
    try:
        assert made.up().returncode == 0
        made.run_pod("p", "exec sleep 600")
        os.kill(made.supervisor(), signal.SIGKILL)
        for pid in made.pids().values():
            os.kill(pid, signal.SIGKILL)
        done = made.local("down", "--purge")
        assert done.returncode == 0, done.stderr
        assert made.leftovers() == []
        assert not made.data.exists()
        assert made.local("down").returncode == 0, "down is idempotent"
    finally:
        made.local("down", "--purge")
        shutil.rmtree(made.data, ignore_errors=True)


@pytest.mark.parametrize("how", [(), ("--detach",)])
@pytest.mark.parametrize("directory", ["/dev/null/x", "/proc/nowhere"])
def test_a_place_that_cannot_be_used_is_said(how: tuple[str, ...], directory: str) -> None:
    made = Rig("lfq", 225)
    try:
        done = made.local("up", "--no-components", "--data-dir", directory, "--port", str(made.port), *how)
        assert done.returncode == 2
        assert directory.split("/x", maxsplit=1)[0] in done.stderr
        assert "--data-dir" in done.stderr
        assert done.stderr.count("\n") == 1
    finally:
        shutil.rmtree(made.data)


@pytest.mark.parametrize("command", [("up",), ("up", "--detach"), ("down",), ("status",), ("logs", "apiserver")])
def test_without_root_it_says_sudo(command: tuple[str, ...]) -> None:
    made = Rig("lfs", 226)
    try:
        (made.data / "run").mkdir(mode=0o700)
        made.data.chmod(0o700)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
        if subprocess.run([*nobody, sys.executable, "-c", "import virt_local"], check=False).returncode != 0:
            pytest.skip("others cannot read this checkout")
        done = subprocess.run(
            [*nobody, str(BIN / "virt-local"), *command], env=made.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.rstrip().endswith("run it again with sudo.")
        assert done.stderr.count("\n") == 1
    finally:
        shutil.rmtree(made.data)
