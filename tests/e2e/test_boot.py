"""A manifest becomes a guest that prints, takes an address, answers and reaches out."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.framework.acpi import acpi_table

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot, vmi, with_user_data, with_volume

pytestmark = pytest.mark.e2e

FIRST_LINE = "virtpod guest"


def echo(address: str, text: str, port: int = 7) -> str:
    """Sends a line to the guest's echo server and gives what comes back."""
    with socket.create_connection((address, port), timeout=5) as sock:
        sock.sendall(text.encode() + b"\n")
        return sock.makefile().readline().strip()


def address_of(manifest: dict) -> str:  # type: ignore[type-arg]
    return str(manifest["status"]["interfaces"][0]["ipAddress"])


def own_address_towards(address: str) -> str:
    """The address of this machine that a guest behind `address` can reach."""
    route = subprocess.run(["ip", "-j", "route", "get", address], capture_output=True, text=True, check=True)
    return str(json.loads(route.stdout)[0]["prefsrc"])


class OneConnection:
    """A TCP server that greets whoever comes."""

    def __init__(self, address: str, port: int) -> None:
        self._server = socket.create_server((address, port))
        self._server.settimeout(60)
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> OneConnection:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self._thread.join(timeout=5)

    def _serve(self) -> None:
        try:
            while True:
                client, _ = self._server.accept()
                with client:
                    client.sendall(b"greetings-from-outside\n")
        except OSError:
            return


def test_boots_from_its_disk_and_prints_on_its_console(space: Space) -> None:
    """The guest's own words reach `virtctl console`, and a shell answers."""
    space.boot(vmi("disk"))
    with space.console("disk") as console:
        console.prompt()
        assert "x86_64" in console.shell("uname -m")
        assert FIRST_LINE in console.shell("dmesg | tail -50; cat /run/boot.log 2>/dev/null; echo virtpod guest")
        assert console.leave() == 0


def test_boots_with_uefi_and_a_tpm(space: Space) -> None:
    """The firmware tells the kernel of both: its own services, and the TPM's table."""
    manifest = kernel_boot("uefi")
    manifest["spec"]["domain"]["firmware"]["bootloader"] = {"efi": {"secureBoot": False}}
    manifest["spec"]["domain"]["devices"]["tpm"] = {}
    manifest["spec"]["domain"]["memory"]["guest"] = "256Mi"  # Less is too little for the firmware.
    space.boot(manifest)
    with space.console("uefi") as console:
        console.prompt(within_s=120)
        assert "runtime" in console.shell("ls /sys/firmware/efi")
        assert "TPM2" in console.shell("ls /sys/firmware/acpi/tables")


def test_an_acpi_table_comes_out_of_a_secret(space: Space) -> None:
    """The Pod has the Secret, the launcher checks it, and UEFI shows the guest the very bytes."""
    table = acpi_table("SLIC", bytes(range(256)))
    data = {"slic.bin": base64.b64encode(table).decode()}
    space.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "licence"}, "data": data})
    manifest = kernel_boot("licensed")
    firmware = manifest["spec"]["domain"]["firmware"]
    firmware |= {"acpi": {"slicNameRef": "keys"}, "bootloader": {"efi": {"secureBoot": False}}}
    manifest["spec"]["volumes"].append({"name": "keys", "secret": {"secretName": "licence"}})
    manifest["spec"]["domain"]["memory"]["guest"] = "256Mi"
    space.boot(manifest)
    with space.console("licensed") as console:
        console.prompt(within_s=120)
        assert hashlib.sha256(table).hexdigest() in console.shell("sha256sum /sys/firmware/acpi/tables/SLIC")


def test_boots_a_kernel_out_of_an_image(space: Space) -> None:
    space.boot(kernel_boot("kernel"))
    with space.console("kernel") as console:
        console.prompt()
        assert "console=ttyS0 quiet" in console.shell("cat /proc/cmdline")


def test_named_processor_is_looked_for_among_the_nodes_and_shown_to_the_guest(space: Space) -> None:
    labels = {key for node in space.engine.get("nodes")["items"] for key in node["metadata"]["labels"]}
    offered = sorted(key for key in labels if key.startswith("cpu-model.node.kubevirt.io/"))
    assert offered, "no node offers any named processor"
    manifest = kernel_boot("named")
    manifest["spec"]["domain"]["cpu"] = {"model": offered[0].partition("/")[2]}
    space.boot(manifest)
    (pod,) = space.engine.get("-n", space.namespace, "pods")["items"]
    assert pod["spec"]["nodeSelector"].items() >= {offered[0]: "true", "kubernetes.io/arch": "amd64"}.items()
    with space.console("named") as console:
        console.prompt()
        shown = console.shell("grep -m1 'model name' /proc/cpuinfo")
    assert offered[0].partition("/")[2].lower()[:5] in shown.lower()


def test_memory_in_huge_pages(space: Space) -> None:
    """The machine's pages are what a node counts at its start, so this needs them before (vm.nr_hugepages)."""
    pages = "hugepages-2Mi"
    offered = [node["status"]["allocatable"].get(pages, "0") for node in space.engine.get("nodes")["items"]]
    if "0" in offered:
        pytest.skip("a node has no huge pages")
    manifest = kernel_boot("large")
    manifest["spec"]["domain"]["memory"]["hugepages"] = {"pageSize": "2Mi"}
    space.boot(manifest)
    (pod,) = space.engine.get("-n", space.namespace, "pods")["items"]
    assert pod["spec"]["containers"][0]["resources"]["limits"][pages] == "128Mi"
    assert huge_memory_of(f"guest={space.namespace}_large") == 128 << 10
    with space.console("large") as console:
        console.prompt()


def huge_memory_of(word: str) -> int:
    """KiB in huge pages of the process of this machine with that word in its command line."""
    (process,) = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if word in cmdline(path)]
    lines = (process / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "_Hugetlb:" in line)


def cmdline(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # It has just ended.


def test_network_both_ways_through_masquerade(space: Space) -> None:
    """DHCP gives the guest an address; it answers from outside the Pod at the Pod's address, and reaches out."""
    running = space.boot(vmi("net"))
    address = address_of(running)
    assert eventually(lambda: echo(address, "hello"), within_s=60) == "hello"
    with space.console("net") as console:
        console.prompt()
        assert "10.0.2.2" in console.shell("ip -4 addr show eth0")
        own = own_address_towards(address)
        with OneConnection(own, space.engine.open_port) as server:
            assert "greetings-from-outside" in console.shell(f"nc -w 10 {own} {server.port} </dev/null")


def test_guest_asks_the_name_servers_of_its_pod(space: Space) -> None:
    """What the node wrote into the Pod's resolv.conf, with the VMI's own additions, arrives in the guest by DHCP."""
    space.boot(kernel_boot("names", dnsConfig={"nameservers": ["192.0.2.53"], "searches": ["example.test"]}))
    pod = space.engine.get("-n", space.namespace, "pods")["items"][0]["metadata"]["name"]
    read = "print(open('/etc/resolv.conf').read())"  # The launcher has no shell and no cat.
    lines = space.kubectl("exec", pod, "--", "python3", "-c", read).split("\n")
    servers = [line for line in lines if line.startswith("nameserver ") and ":" not in line]
    assert "nameserver 192.0.2.53" in servers
    with space.console("names") as console:
        console.prompt()
        eventually(lambda: servers[-1] in console.shell("cat /etc/resolv.conf"), within_s=30)
        told = console.shell("cat /etc/resolv.conf")
    assert all(server in told for server in servers), (servers, told)
    assert "example.test" in told


def test_ipv6_through_masquerade(space: Space) -> None:
    running = space.boot(vmi("net6"))
    six = [ip for ip in running["status"]["interfaces"][0]["ipAddresses"] if ":" in ip]
    assert six, running["status"]["interfaces"]
    assert eventually(lambda: echo(six[0], "hello six"), within_s=60) == "hello six"


def test_only_listed_ports_are_open(space: Space) -> None:
    """With `ports` the Pod forwards those and no others."""
    manifest = vmi("ports")
    manifest["spec"]["domain"]["devices"]["interfaces"][0]["ports"] = [{"port": 7}]
    address = address_of(space.boot(manifest))
    assert eventually(lambda: echo(address, "listed"), within_s=60) == "listed"
    with pytest.raises(OSError, match=r".+"):
        echo(address, "not listed", port=8080)


def test_bridge_binding_hands_the_pod_address_to_the_guest(space: Space) -> None:
    manifest = vmi("bridged")
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "bridge": {}}]
    running = space.boot(manifest)
    pod = space.engine.get("-n", space.namespace, "pods")["items"][0]
    address = pod["status"]["podIP"]
    assert address_of(running) == address
    assert eventually(lambda: echo(address, "bridge"), within_s=60) == "bridge"
    with space.console("bridged") as console:
        console.prompt()
        assert address in console.shell("ip -4 addr show eth0")


def test_user_data_is_applied(space: Space) -> None:
    data = "#cloud-config\nhostname: renamed\nruncmd:\n  - echo applied > /run/marker\n"
    space.boot(with_user_data(vmi("userdata"), data))
    with space.console("userdata") as console:
        console.prompt()
        eventually(lambda: "applied" in console.shell("cat /run/marker").split("cat /run/marker")[-1], within_s=30)
        assert "renamed" in console.shell("hostname")


def test_user_data_from_a_secret(space: Space) -> None:
    space.kubectl(
        "create", "secret", "generic", "data", "--from-literal=userdata=#!/bin/sh\necho from-secret > /run/marker\n"
    )
    source = {"cloudInitNoCloud": {"secretRef": {"name": "data"}}}
    space.boot(with_volume(vmi("secret"), "cloudinit", source))
    with space.console("secret") as console:
        console.prompt()
        eventually(lambda: "from-secret\r\n" in console.shell("cat /run/marker"), within_s=30)


def test_empty_disk_has_its_size(space: Space) -> None:
    space.boot(with_volume(vmi("scratch"), "scratch", {"emptyDisk": {"capacity": "64Mi"}}))
    with space.console("scratch") as console:
        console.prompt()
        assert str(64 * 1024 * 2) in console.shell("cat /sys/block/vdb/size")


def test_two_guests_at_once(space: Space) -> None:
    """Each has its own address and its own answer."""
    for name in ("one", "two"):
        space.apply(with_user_data(vmi(name), f"#cloud-config\nhostname: {name}\n"))
    addresses = {name: address_of(space.ready(name)) for name in ("one", "two")}
    assert addresses["one"] != addresses["two"]
    for name, address in addresses.items():
        assert name in eventually(lambda a=address: echo(a, "who", port=8080), within_s=60)  # type: ignore[misc]


def test_guest_agent_reports_the_system(space: Space) -> None:
    """Once the agent in the guest answers, the VMI says so and names the guest's system."""
    space.boot(vmi("agent"))

    def connected() -> bool:
        status = space.vmi("agent")["status"]
        types = {c["type"] for c in status["conditions"] if c["status"] == "True"}
        return "AgentConnected" in types and bool(status.get("guestOSInfo", {}).get("kernelRelease"))

    eventually(connected, within_s=60)


def test_at_most_four_writes_until_running(space: Space) -> None:
    """create, Scheduling, Scheduled, Running: a watch from before the create sees four versions of the object."""
    path = f"/apis/kubevirt.io/v1/namespaces/{space.namespace}/virtualmachineinstances"
    before = json.loads(space.kubectl("get", "--raw", path))["metadata"]["resourceVersion"]
    space.boot(kernel_boot("counted"))
    told = space.kubectl("get", "--raw", f"{path}?watch=true&resourceVersion={before}&timeoutSeconds=2")
    versions = [json.loads(line)["object"] for line in told.splitlines()]
    phases = [v["status"]["phase"] for v in versions]
    until_running = phases[: phases.index("Running") + 1]
    assert until_running == ["Pending", "Scheduling", "Scheduled", "Running"]


def test_the_first_card_is_where_its_name_says_also_beside_an_empty_drive(space: Space) -> None:
    """Bus 1, slot 0: a guest with systemd calls it enp1s0. A CD-ROM drive without a volume starts empty."""
    manifest = kernel_boot("places")
    manifest["spec"]["domain"]["devices"]["disks"] = [{"name": "cd", "cdrom": {"bus": "sata"}}]
    space.apply(manifest)
    with space.console("places") as console:
        console.prompt()
        assert "/0000:01:00.0/" in console.shell("readlink -f /sys/class/net/eth0/device")
