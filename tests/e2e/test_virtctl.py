"""virtctl against a real guest: ssh, scp, port-forward, screen, lifecycle, and what the agent says."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .conftest import Space
from .engine import BIN, GUEST_IMAGE, eventually
from .manifests import vmi, with_user_data
from .vms import vm

pytestmark = pytest.mark.e2e


@pytest.fixture
def key(tmp_path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    return tmp_path / "key"


def with_key(manifest: dict[str, Any], key: Path) -> dict[str, Any]:
    public = key.with_suffix(".pub").read_text().strip()
    return with_user_data(manifest, f"#cloud-config\nssh_authorized_keys:\n  - {public}\n")


def ssh_flags(key: Path) -> list[str]:
    return ["-i", str(key), "--known-hosts", str(key.with_name("known")), "-t", "-o StrictHostKeyChecking=accept-new"]


def test_ssh_and_scp_reach_the_guest(space: Space, key: Path, tmp_path: Path) -> None:
    """A key from cloud-init opens the door; a file goes in and comes back the same; a failure is exit code 1."""
    space.boot(with_key(vmi("door"), key))
    flags = ssh_flags(key)

    def login() -> str:
        return space.virtctl("ssh", "root@vmi/door", *flags, "-c", "uname -n; id -un")

    assert eventually(login, within_s=60, what="ssh into the guest").split() == ["door", "root"]
    sent = tmp_path / "sent"
    sent.write_bytes(bytes(range(256)) * 4096)
    # The protocol of today's scp, and that of older ones.
    for number, old in enumerate(([], ["-t", "-O"])):
        there = f"root@vmi/door:/tmp/file{number}"
        space.virtctl("scp", *flags, *old, str(sent), there)
        assert "1048576" in space.virtctl("ssh", f"root@vmi/door/{space.namespace}", *flags, "-c", "wc -c </tmp/file0")
        space.virtctl("scp", *flags, *old, there, str(tmp_path / f"back{number}"))
        assert (tmp_path / f"back{number}").read_bytes() == sent.read_bytes()
    failed = space.engine.run("virtctl", "-n", space.namespace, "ssh", "root@vmi/door", *flags, "-c", "exit 3")
    assert failed.returncode == 1


def test_a_made_vm_lets_its_key_in(space: Space, key: Path) -> None:
    """`create vm` names no buses, so its disks are SATA; a preference makes them virtio, which the test guest knows."""
    virtio = {"devices": {"preferredDiskBus": "virtio", "preferredInterfaceModel": "virtio"}}
    api, kind = "instancetype.kubevirt.io/v1beta1", "VirtualMachinePreference"
    space.apply({"apiVersion": api, "kind": kind, "metadata": {"name": "virtio"}, "spec": virtio})
    manifest = space.virtctl(
        "create", "vm", "--name=made", "--memory=128Mi", "--preference=virtualmachinepreference/virtio", "--user=root",
        f"--volume-containerdisk=src:{GUEST_IMAGE}", f"--ssh-key={key.with_suffix('.pub').read_text().strip()}",
    )  # fmt: skip
    space.kubectl("apply", "-f", "-", stdin=manifest)
    space.ready("made")

    def login() -> str:
        return space.virtctl("ssh", "root@vm/made", *ssh_flags(key), "-c", "uname -n")

    assert eventually(login, within_s=60, what="ssh into the guest").strip() == "made"


@contextmanager
def forwarding(space: Space, *args: str) -> Iterator[list[int]]:
    """`virtctl port-forward` in the background; gives the local ports. ^C must end it with exit code 0."""
    command = [str(BIN / "virtctl"), "-n", space.namespace, "port-forward", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=space.engine.env())
    assert process.stdout is not None
    ports = [int(process.stdout.readline().split(":")[1].split()[0]) for word in args if word[0] in "0ut"]
    try:
        yield ports
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        process.stdout.close()


def echo(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        return echoed(client, data)


def echoed(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    answer = b""
    while len(answer) < len(data) and (piece := client.recv(65536)):
        answer += piece
    return answer


def begun(port: int) -> socket.socket:
    """A connection on which the guest has answered. Its server lets two wait, and a slow guest may let a third down."""
    client = socket.create_connection(("127.0.0.1", port), 20)
    if echoed(client, b"hello\n") == b"hello\n":
        return client
    client.close()
    raise ConnectionError("no answer")


def large_echo(port: int, data: bytes) -> bytes:
    """What has begun must come back whole."""
    with eventually(lambda: begun(port), within_s=60, what="the guest's echo server") as client:
        return echoed(client, data)


def datagram(port: int, data: bytes) -> bytes:
    """Sent by UDP from a port of its own, and what came back within a second."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        client.sendto(data, ("127.0.0.1", port))
        return client.recv(65536)


def test_port_forward_to_the_echo_server(space: Space) -> None:
    """More than any buffer on the way holds, three ports, UDP too, and several connections at once."""
    space.boot(vmi("echo"))
    with forwarding(space, "vmi/echo", "0:7", "0:8080", "udp/0:7") as (port, lines, packets):
        eventually(lambda: echo(port, b"hello\n") == b"hello\n", within_s=60, what="the guest's echo server")
        large = b"0123456789abcde\n" * 65536
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: large_echo(port, large), range(4)))
        assert [len(answer) for answer in answers] == [len(large)] * 4
        assert all(answer == large for answer in answers)
        with socket.create_connection(("127.0.0.1", lines), 20) as client:
            client.sendall(b"who\n")
            assert client.recv(100).startswith(b"echo")
        for data in (b"ping", b"x" * 4000):
            eventually(lambda: datagram(packets, data) == data, within_s=20, what="the guest's UDP echo server")  # noqa: B023


def pixels(picture: bytes) -> tuple[int, int, set[bytes]]:
    """Width, height and the colours of a PNG with 8 bits per channel and no interlacing."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    at, body, header = 8, b"", b""
    while at < len(picture):
        length, kind = struct.unpack(">I4s", picture[at : at + 8])
        if kind == b"IHDR":
            header = picture[at + 8 : at + 8 + length]
        elif kind == b"IDAT":
            body += picture[at + 8 : at + 8 + length]
        at += length + 12
    width, height = struct.unpack(">II", header[:8])
    raw = zlib.decompress(body)
    return width, height, {raw[i : i + 3] for i in range(1, len(raw), 3)}


def test_screenshot_is_a_picture_of_the_guests_screen(space: Space, tmp_path: Path) -> None:
    space.boot(vmi("screen"))
    path = tmp_path / "screen.png"

    def taken() -> bool:
        space.virtctl("vnc", "screenshot", "screen", "-f", str(path))
        width, height, colours = pixels(path.read_bytes())
        return width >= 640 and height >= 400 and len(colours) > 1

    eventually(taken, within_s=60, what="a picture with something on it")


def test_vnc_proxy_speaks_rfb(space: Space) -> None:
    space.boot(vmi("rfb"))
    command = [str(BIN / "virtctl"), "-n", space.namespace, "vnc", "rfb", "--proxy-only"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=space.engine.env()) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        with socket.create_connection(("127.0.0.1", port), 20) as viewer:
            assert viewer.recv(12).startswith(b"RFB 003.")
        assert process.wait(20) == 0


def test_guest_information(space: Space) -> None:
    """The guest agent's answers, once it is connected; before that a sentence and exit code 1."""
    space.boot(vmi("agent"))
    info = eventually(lambda: space.virtctl("guestosinfo", "agent"), within_s=120, what="the guest agent")
    assert json.loads(info)["hostname"] == "agent"
    assert "items" in json.loads(space.virtctl("fslist", "agent"))
    assert "items" in json.loads(space.virtctl("userlist", "agent"))


def test_objects_of_a_vm(space: Space) -> None:
    """Instance type and preference from `create`, `expand`, a volume that comes and goes, and a Service."""
    for args in (["instancetype", "--cpu=2", "--memory=96Mi"], ["preference", "--cpu-topology=cores"]):
        space.kubectl("apply", "-f", "-", stdin=space.virtctl("create", *args, "--name=tiny", "-n", space.namespace))
    matchers = ["--instancetype=virtualmachineinstancetype/tiny", "--preference=virtualmachinepreference/tiny"]
    disk = f"--volume-containerdisk=src:{GUEST_IMAGE}"
    manifest = space.virtctl("create", "vm", "--name=shaped", "--run-strategy=Halted", disk, *matchers)
    space.kubectl("apply", "-f", "-", stdin=manifest)
    domain = json.loads(space.virtctl("expand", "--vm=shaped", "-o=json"))["spec"]["template"]["spec"]["domain"]
    assert (domain["cpu"]["cores"], domain["memory"]["guest"]) == (2, "96Mi")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}}
    space.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim})
    space.virtctl("addvolume", "shaped", "--volume-name=data", "--bus=virtio")
    assert "data" in volumes(space, "shaped")
    space.virtctl("removevolume", "shaped", "--volume-name=data")
    eventually(lambda: "data" not in volumes(space, "shaped"), within_s=10)


def test_a_service_for_a_vm(space: Space) -> None:
    space.apply(vm("shown", "Halted"))
    assert space.virtctl("expose", "vm", "shown", "--name=door", "--port=22", "-o=name") == "service/door\n"
    spec = space.engine.get("-n", space.namespace, "service", "door")["spec"]
    assert spec["selector"] == {"vmi.kubevirt.io/id": "shown"}
    assert spec["clusterIP"] not in ("", "None")


def volumes(space: Space, name: str) -> list[str]:
    spec = space.engine.get("-n", space.namespace, "vm", name)["spec"]["template"]["spec"]
    return [volume["name"] for volume in spec["volumes"]]


def test_a_vm_from_create_to_stop(space: Space) -> None:
    """What `create vm` prints is accepted, and start, restart and stop do what they say."""
    manifest = space.virtctl(
        "create", "vm", "--name=made", "--run-strategy=Manual", "--memory=128Mi", "--termination-grace-period=20",
        f"--volume-containerdisk=src:{GUEST_IMAGE}",
    )  # fmt: skip
    space.kubectl("apply", "-f", "-", stdin=manifest)
    assert "was scheduled to start" in space.virtctl("start", "made")
    space.engine.run("virtctl", "-n", space.namespace, "explain", "vmi", "made", "--wait", timeout=120)
    first = space.ready("made")["metadata"]["uid"]
    refused = space.engine.run("virtctl", "-n", space.namespace, "start", "made")
    assert refused.returncode == 1
    assert "already running" in refused.stderr
    space.virtctl("restart", "made", "--force", "--grace-period=0")
    eventually(lambda: space.vmi("made")["metadata"]["uid"] != first, within_s=60, what="another VMI")
    space.ready("made")
    space.virtctl("stop", "made", "--force", "--grace-period=0")
    space.gone("vmi")
