"""Services of virt-local with real packets: by address, by port of the machine and by name; from Pods, the machine and
its network; two nodes."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.framework.names import NoAnswer, resolve
from virt_local.controllers.services.dnsmasq import UID
from virt_local.up import links
from virt_local.up.links import Address, Layout, Veth

from .rig import HOST_IMAGE, Rig, eventually

pytestmark = pytest.mark.root

#: Answers on TCP and UDP, on both families, with its own name and who asks.
SERVE = """
import socket, socketserver, threading
name = socket.gethostname()
class Words(socketserver.BaseRequestHandler):
    def handle(self):
        words = f"{name} {self.client_address[0]}".encode()
        if isinstance(self.request, tuple):
            self.request[1].sendto(words, self.client_address)
        else:
            self.request.sendall(words)
class Tcp(socketserver.ThreadingTCPServer):
    address_family, allow_reuse_address = socket.AF_INET6, True
class Udp(socketserver.ThreadingUDPServer):
    address_family = socket.AF_INET6
servers = [Tcp(("::", 8080), Words), Udp(("::", 8080), Words)]
threading.Thread(target=servers[0].serve_forever).start()
servers[1].serve_forever()
"""
#: Prints the answer of each place (`tcp-HOST-PORT`), or the kind of failure.
ASK = """
import socket, sys
for place in sys.argv[1:]:
    protocol, host, port = place.split("-", 1)[0], *place.split("-", 1)[1].rsplit("-", 1)
    kind = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[protocol]
    try:
        family, _, _, _, address = socket.getaddrinfo(host, int(port), type=kind)[0]
        with socket.socket(family, kind) as asking:
            asking.settimeout(3)
            asking.connect(address)
            if protocol == "udp":
                asking.send(b"?")
            print(asking.recv(200).decode().replace("::ffff:", ""))
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    made = Rig("lfs", 224, nodes=2)
    try:
        done = made.up()
        assert done.returncode == 0, done.stderr
        for name, node in (("one", "node1"), ("two", "node2")):
            serve(made, name, node)
        made.run_pod("asking", "exec sleep 3600", nodeSelector={"kubernetes.io/hostname": "node1"})
        yield made
    finally:
        done = made.local("down", "--purge", "--grace", "3")
        left = made.leftovers()
        shutil.rmtree(made.data, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    assert left == []


def serve(rig: Rig, name: str, node: str, app: str = "web", **spec: Any) -> None:
    ready = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    ports = [{"containerPort": 8080, "name": "words"}]
    container = {"name": "c", "image": HOST_IMAGE, "command": ["python3", "-c", SERVE], "readinessProbe": ready}
    wanted = {"containers": [container | {"ports": ports}], "nodeSelector": {"kubernetes.io/hostname": node}}
    wanted |= {"terminationGracePeriodSeconds": 1, **spec}
    meta = {"name": name, "labels": {"app": app}}
    rig.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": wanted})
    )
    rig.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=40s")


@pytest.fixture
def service(rig: Rig) -> Iterator[Any]:
    made: list[str] = []

    def make(name: str, **spec: Any) -> dict[str, Any]:
        made.append(name)
        ports = [{"name": p, "port": 80, "protocol": p.upper(), "targetPort": 8080} for p in ("tcp", "udp")]
        wanted = {"selector": {"app": "web"}, "ports": ports, **spec}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": wanted}
        found = json.loads(rig.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(body)))["spec"]
        return dict(found)

    yield make
    for name in made:
        rig.kubectl("delete", "service", name, "--ignore-not-found")


def ask(rig: Rig, pod: str, *places: str) -> list[str]:
    return rig.kubectl("exec", pod, "--", "python3", "-c", ASK, *places).splitlines()


def ask_here(*places: str, netns: str = "") -> list[str]:
    enter = ["nsenter", f"--net=/run/netns/{netns}", "--"] if netns else []
    done = subprocess.run(
        [*enter, "python3", "-c", ASK, *places], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def names(answers: list[str]) -> set[str]:
    return {answer.split()[0] for answer in answers}


def test_a_pod_and_the_machine_reach_the_pods_of_both_nodes(rig: Rig, service: Any) -> None:
    address = service("plain")["clusterIP"]
    assert address.startswith("10.224.2")
    tcp, udp = f"tcp-{address}-80", f"udp-{address}-80"
    eventually(lambda: names(ask(rig, "asking", *[tcp] * 8, *[udp] * 8)) == {"one", "two"})
    eventually(lambda: names(ask_here(*[tcp] * 8, *[udp] * 8)) == {"one", "two"})


def test_a_pod_reaches_itself(rig: Rig, service: Any) -> None:
    address = service("self")["clusterIP"]
    eventually(lambda: names(ask(rig, "one", *[f"tcp-{address}-80", f"udp-{address}-80"] * 6)) == {"one", "two"})


def test_both_families_when_asked_for(rig: Rig, service: Any) -> None:
    spec = service("both", ipFamilyPolicy="RequireDualStack")
    assert [":" in each for each in spec["clusterIPs"]] == [False, True]
    six = spec["clusterIPs"][1]
    places = [f"tcp-{six}-80", f"udp-{six}-80"] * 6
    eventually(lambda: names(ask(rig, "asking", *places)) == {"one", "two"})
    eventually(lambda: names(ask_here(*places)) == {"one", "two"})


@pytest.fixture
def lan() -> Iterator[str]:
    """A machine of the network beyond, which knows this machine and nothing behind it."""
    name = "lfs-lan"
    links.ensure_namespace(name)
    try:
        here = Layout(veths=(Veth("lfsx0", "eth0", name),), addresses=(Address("lfsx0", "198.51.100.5/30"),))
        links.establish(here)
        there = Layout(addresses=(Address("eth0", "198.51.100.6/30"),), up=("eth0",))
        links.in_namespace(name, partial(links.establish, there))
        yield name
    finally:
        links.remove_namespace(name)
        links.remove("lfsx0")


def test_a_port_of_the_machine_from_everywhere(rig: Rig, service: Any, lan: str) -> None:
    spec = service("door", type="NodePort")
    tcp, udp = (port["nodePort"] for port in spec["ports"])
    for address in ("198.51.100.5", "10.224.0.1", "10.224.0.11", "10.224.0.12"):
        places = [f"tcp-{address}-{tcp}", f"udp-{address}-{udp}"] * 6
        eventually(lambda places=places: names(ask_here(*places)) == {"one", "two"})
    outside = [f"tcp-198.51.100.5-{tcp}", f"udp-198.51.100.5-{udp}"] * 6
    answers = ask_here(*outside, netns=lan)
    assert names(answers) == {"one", "two"}
    assert {answer.split()[1] for answer in answers} == {"198.51.100.6"}, "a Pod sees who asks"
    assert names(ask(rig, "asking", *outside[:2])) == {"TimeoutError"}, "the machine's own ports stay closed to Pods"
    node = [f"tcp-10.224.0.12-{tcp}", f"udp-10.224.0.12-{udp}"] * 6
    assert names(ask(rig, "asking", *node)) == {"one", "two"}
    assert names(ask_here(f"tcp-127.0.0.1-{tcp}")) == {"ConnectionRefusedError"}


def test_a_service_without_endpoints_refuses_at_once(rig: Rig, service: Any) -> None:
    address = service("nobody", selector={"app": "nobody"})["clusterIP"]
    for answers in (ask(rig, "asking", f"tcp-{address}-80"), ask_here(f"tcp-{address}-80")):
        assert names(answers) == {"ConnectionRefusedError"}
    assert names(ask_here(f"udp-{address}-80")) <= {"ConnectionRefusedError", "PermissionError"}


def test_a_client_stays_with_its_pod(rig: Rig, service: Any) -> None:
    address = service("sticky", sessionAffinity="ClientIP")["clusterIP"]
    for answers in (
        eventually(lambda: _all_answer(ask(rig, "asking", *[f"tcp-{address}-80"] * 10))),
        eventually(lambda: _all_answer(ask_here(*[f"tcp-{address}-80"] * 10))),
    ):
        assert len(names(answers)) == 1


def _all_answer(answers: list[str]) -> list[str]:
    return answers if names(answers) <= {"one", "two"} else []


def test_only_ready_pods_get_anything_and_the_next_one_follows(rig: Rig, service: Any) -> None:
    """Also datagrams of a client that never stops sending."""
    serve(rig, "first", "node1", app="moving")
    spec = service("moves", selector={"app": "moving"}, publishNotReadyAddresses=False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(1)
        asking.connect((spec["clusterIP"], 80))
        eventually(lambda: _says(asking) == "first")
        serve(rig, "second", "node2", app="moving")
        rig.kubectl("delete", "pod", "first")
        eventually(lambda: _says(asking) == "second")
    assert names(ask_here(*[f"tcp-{spec['clusterIP']}-80"] * 4)) == {"second"}
    rig.kubectl("delete", "pod", "second")


def _says(asking: socket.socket) -> str:
    try:
        asking.send(b"?")
        return asking.recv(200).decode().split()[0]
    except OSError:
        return ""


def test_names(rig: Rig, service: Any) -> None:
    address = service("named")["clusterIP"]
    short, whole = "tcp-named-80", "udp-named.default.svc.cluster.local-80"
    eventually(lambda: names(ask(rig, "asking", *[short, whole] * 4)) == {"one", "two"})
    eventually(lambda: dig("named.default.svc.cluster.local") == [address])
    reverse = ipaddress.ip_address(address).reverse_pointer
    eventually(lambda: dig(reverse, "PTR") == ["named.default.svc.cluster.local"])
    eventually(
        lambda: dig("_tcp._tcp.named.default.svc.cluster.local", "SRV") == ["80 named.default.svc.cluster.local"]
    )
    assert dig("nothing.default.svc.cluster.local") == []
    resolv = rig.kubectl("exec", "asking", "--", "cat", "/etc/resolv.conf")
    assert "nameserver 10.224.0.2\n" in resolv
    assert "search default.svc.cluster.local svc.cluster.local cluster.local" in resolv


def test_a_headless_service_names_its_pods(rig: Rig, service: Any) -> None:
    assert service("bare", clusterIP="None")["clusterIP"] == "None"
    pods = json.loads(rig.kubectl("get", "pods", "-l", "app=web", "-o", "json"))["items"]
    wanted = sorted(pod["status"]["podIP"] for pod in pods)
    eventually(lambda: sorted(dig("bare.default.svc.cluster.local")) == wanted)
    serve(rig, "hosted", "node2", hostname="own", subdomain="bare")
    address = rig.kubectl("get", "pod", "hosted", "-o", "jsonpath={.status.podIP}")
    eventually(lambda: dig("own.bare.default.svc.cluster.local") == [address])
    rig.kubectl("delete", "pod", "hosted")
    eventually(lambda: dig("own.bare.default.svc.cluster.local") == [])


def dig(name: str, kind: str = "A") -> list[str]:
    try:
        return resolve("10.224.0.2", name, kind)
    except NoAnswer:
        return ["no answer"]


def dnsmasq() -> int:
    """Of this instance: the one in its directory."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if words[0] == b"dnsmasq" and b"--addn-hosts=/run/virtpod-dns-lfs/hosts" in words:
            return int(path.parent.name)
    return 0


def test_the_name_server_has_no_rights_and_comes_back(rig: Rig) -> None:
    closed = [f"tcp-10.224.0.1-{rig.port}", "tcp-10.224.0.11-10250", "tcp-10.224.0.12-10250"]
    assert names(ask_here(*closed, netns="lfs-dns")) <= {"TimeoutError", "PermissionError"}, "it asks, and no more"
    pid = eventually(dnsmasq)
    status = Path(f"/proc/{pid}/status").read_text()
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert facts["Uid"].split() == facts["Gid"].split() == [str(UID)] * 4
    assert {int(facts[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert facts["NoNewPrivs"].strip() == "1"
    assert Path("/run/virtpod-dns-lfs").stat().st_mode & 0o007 == 0
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: dnsmasq() not in (0, pid))
    eventually(lambda: dig("nothing.default.svc.cluster.local") == [])


#: Sends questions as fast as it can for two seconds, over one socket and over many.
FLOOD = """
import socket, time
name = b"\\x05named\\x07default\\x03svc\\x07cluster\\x05local\\0"
question = bytes.fromhex("abcd01000001000000000000") + name + b"\\0\\1\\0\\1"
until = time.monotonic() + 2
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(200)]
while time.monotonic() < until:
    for each in sockets:
        try:
            each.sendto(question, ("10.224.0.2", 53))
        except OSError:
            pass
"""


def test_a_flood_of_questions_reaches_the_name_server_in_part_only(rig: Rig) -> None:
    """Others are answered meanwhile, and the API as well."""
    pid = eventually(dnsmasq)
    before = cpu_s(pid)
    with subprocess.Popen(["kubectl", "exec", "two", "--", "python3", "-c", FLOOD], env=rig.env) as flood:
        answers = []
        while flood.poll() is None:
            answers.append(dig("nothing.default.svc.cluster.local"))
            rig.kubectl("get", "nodes")
    assert answers
    assert answers.count([]) == len(answers)
    assert cpu_s(pid) - before < 0.5


def cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def test_a_slice_by_hand_leads_to_pods_only(rig: Rig, service: Any) -> None:
    """Whoever may write one cannot have the machine reach itself, nor a node."""
    address = service("hand", selector=None)["clusterIP"]
    pod = rig.kubectl("get", "pod", "one", "-o", "jsonpath={.status.podIP}")
    places = (("10.224.0.1", rig.port), ("10.224.0.11", 10250), (pod, 8080))
    for index, (end, number) in enumerate(places):
        piece = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"hand-{index}", "labels": {"kubernetes.io/service-name": "hand"}},
            "addressType": "IPv4",
            "ports": [{"name": "tcp", "port": number}],
            "endpoints": [{"addresses": [end]}],
        }
        rig.kubectl("apply", "-f", "-", stdin=json.dumps(piece))
    eventually(lambda: names(ask(rig, "two", f"tcp-{address}-80")) == {"one"})
    assert names(ask(rig, "two", *[f"tcp-{address}-80"] * 12)) == {"one"}
    rig.kubectl("delete", "endpointslice", "hand-0", "hand-1", "hand-2")


def refused(rig: Rig, spec: dict[str, Any], kind: str = "Service", api: str = "v1") -> str:
    body = json.dumps({"apiVersion": api, "kind": kind, "metadata": {"name": "refused"}, "spec": spec})
    command = ["kubectl", "create", "-f", "-"]
    done = subprocess.run(command, env=rig.env, input=body, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_what_is_not_built_or_taken_is_refused(rig: Rig, service: Any) -> None:
    taken = service("taken", type="NodePort")
    port = {"port": 80}
    assert "SCTP: virt-local carries TCP and UDP" in refused(rig, {"ports": [port | {"protocol": "SCTP"}]})
    assert "spec.externalIPs" in refused(rig, {"ports": [port], "externalIPs": ["10.224.0.1"]})
    assert "already allocated" in refused(rig, {"ports": [port], "clusterIP": taken["clusterIP"]})
    assert "not in the valid range" in refused(rig, {"ports": [port], "clusterIP": "10.1.2.3"})
    number = taken["ports"][0]["nodePort"]
    assert "already allocated" in refused(rig, {"type": "NodePort", "ports": [port | {"nodePort": number}]})
    assert "30000-32767" in refused(rig, {"type": "NodePort", "ports": [port | {"nodePort": 22}]})


def test_what_is_kept_without_effect_is_said(rig: Rig) -> None:
    def warning(body: dict[str, Any]) -> str:
        command = ["kubectl", "create", "-f", "-"]
        text = json.dumps(body)
        done = subprocess.run(command, env=rig.env, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"}}
    said = warning(policy | {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}})
    assert "Warning: virt-local keeps this NetworkPolicy, but nothing here enforces it" in said
    rig.kubectl("delete", "networkpolicy", "closed")
    balanced = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "balanced"}}
    said = warning(balanced | {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
    assert "Warning: virt-local has no load balancer" in said
    assert "<pending>" in rig.kubectl("get", "service", "balanced")
    rig.kubectl("delete", "service", "balanced")


def test_addresses_are_kept_and_given_back(rig: Rig, service: Any) -> None:
    before = service("kept", type="NodePort")
    rig.kubectl("patch", "service", "kept", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    rig.kubectl("patch", "service", "kept", "-p", '{"spec":{"type":"ClusterIP"}}')
    after = json.loads(rig.kubectl("get", "service", "kept", "-o", "json"))["spec"]
    assert after["clusterIP"] == before["clusterIP"]
    assert [port.get("nodePort") for port in after["ports"]] == [None, None]
    rig.kubectl("delete", "service", "kept")
    assert service("again", clusterIP=before["clusterIP"])["clusterIP"] == before["clusterIP"]


def test_all_of_it_outlives_the_controllers(rig: Rig, service: Any) -> None:
    """Packets flow while they are gone; what changed meanwhile is there soon after."""
    address = service("outlives")["clusterIP"]
    eventually(lambda: names(ask_here(f"tcp-{address}-80")) <= {"one", "two"})
    os.kill(rig.pids()["controllers"], signal.SIGKILL)
    assert names(ask_here(f"tcp-{address}-80")) <= {"one", "two"}
    later = service("later")["clusterIP"]
    eventually(lambda: names(ask_here(f"tcp-{later}-80")) <= {"one", "two"})
    eventually(lambda: dig("later.default.svc.cluster.local") == [later])
