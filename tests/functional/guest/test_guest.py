"""The test guest by itself: if it does not keep its promises, no other test with a guest can be believed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from pathlib import Path

import pytest

from .machine import FILES, ROOT, Machine, ask, disk_boot, kernel_boot, no_cloud_iso, user_network

LAYOUT = ROOT / ".build" / "guest"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKxlb0aMEmFzZ3V2d3h5ejAxMjM0NTY3ODkwYWJj tester"
CLOUD_CONFIG = """\
#cloud-config
hostname: "named-by-seed"
ssh_authorized_keys:
  - {key}
write_files:
- path: /etc/motto
  permissions: '0600'
  content: |
    first line
      indented 'second'
- path: /etc/short
  content: "one\\ttab"
- encoding: b64
  path: /etc/packed
  content: cGFja2Vk
bootcmd:
  - echo early > /run/order
runcmd:
  - echo late >> /run/order
  - [sh, -c, 'echo "listed $0" >> /run/order', "a, b"]
  - |
    for n in 1 2; do
      echo block $n >> /run/order
    done
  - - echo
    - nested
password: secret
chpasswd: {{ expire: False }}
"""

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not FILES.is_dir(), reason="build the guest first: make guest")]


def seed(path: Path) -> list[str]:
    return ["-drive", f"file={path},format=raw,if=virtio,readonly=on"]


def test_layout_is_a_valid_image() -> None:
    """Each descriptor names a blob with that digest and size, and the reference stands in the index."""
    index = json.loads((LAYOUT / "index.json").read_text())
    descriptor = index["manifests"][0]
    assert descriptor["annotations"]["org.opencontainers.image.ref.name"] == "virtpod.internal/guest:v1"
    manifest = json.loads((LAYOUT / "blobs/sha256" / descriptor["digest"].split(":")[1]).read_text())
    assert len(manifest["layers"]) == 1
    for part in (descriptor, manifest["config"], *manifest["layers"]):
        blob = (LAYOUT / "blobs/sha256" / part["digest"].split(":")[1]).read_bytes()
        assert (len(blob), hashlib.sha256(blob).hexdigest()) == (part["size"], part["digest"].split(":")[1])
    assert sum(path.stat().st_size for path in LAYOUT.rglob("*") if path.is_file()) < 60 << 20


def test_second_build_does_nothing() -> None:
    before = (LAYOUT / "index.json").stat().st_mtime_ns
    done = subprocess.run([ROOT / "hack/guest/build", LAYOUT], capture_output=True, text=True, timeout=120, check=True)
    assert "up to date" in done.stdout
    assert (LAYOUT / "index.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("boot", [disk_boot, kernel_boot])
def test_boots_takes_an_address_serves_and_powers_off(boot: object) -> None:
    """Both ways of booting give the same guest."""
    network, ports = user_network(7, 8080)
    with Machine(*(boot()), *network) as guest:  # type: ignore[operator]
        guest.wait_for("virtpod guest: up")
        guest.wait_for("virtpod guest: address 10.0.2.15/24 on eth0")
        guest.wait_for("virtpod guest: ready")
        assert ask(ports[7], "echo me") == "echo me"
        assert ask(ports[8080], "hello") == "guest hello"
        assert guest.shell("id -u") == "0"
        assert "10.0.2.2" in guest.shell("ip route show default")
        assert guest.shell("cat /etc/resolv.conf") == "nameserver 10.0.2.3"
        guest.qmp("system_powerdown")
        guest.wait_for("virtpod guest: ACPI power button, shutting down")
        assert guest.process.wait(timeout=15) == 0


def test_cloud_config(tmp_path: Path) -> None:
    files = {
        "meta-data": "instance-id: i-1\nlocal-hostname: named-by-metadata\n",
        "user-data": CLOUD_CONFIG.format(key=KEY),
    }
    with Machine(*kernel_boot(), *seed(no_cloud_iso(tmp_path / "seed.iso", files))) as guest:
        guest.wait_for("virtpod guest: user-data applied")
        guest.wait_for("virtpod guest: ready")
        assert guest.shell("hostname") == "named-by-seed"
        assert guest.shell("cat /root/.ssh/authorized_keys") == KEY
        assert guest.shell("cat /etc/motto") == "first line\n  indented 'second'"
        assert guest.shell("stat -c %a /etc/motto") == "600"
        assert guest.shell("cat /etc/short; echo") == "one\ttab"
        assert guest.shell("cat /etc/packed; echo") == "packed"
        assert guest.shell("cat /run/order").split("\n") == ["early", "late", "listed a, b", "block 1", "block 2"]
        assert guest.shell("cat /run/user-data.log") == "nested"
        assert guest.shell("grep -c '^root:[$]6[$]' /etc/shadow") == "1"


def test_script_and_static_network(tmp_path: Path) -> None:
    """A #! script runs; network-config version 2 replaces DHCP."""
    files = {
        "meta-data": "local-hostname: scripted\npublic-keys:\n  - " + KEY + "\n",
        "user-data": "#!/bin/sh\nip -4 addr show eth0 > /run/seen\n",
        "network-config": (
            "version: 2\nethernets:\n  eth0:\n    dhcp4: false\n    mtu: 1400\n    addresses: [10.0.2.77/24]\n"
            "    gateway4: 10.0.2.2\n    nameservers:\n      addresses: [10.0.2.3]\n      search: [lab.test]\n"
        ),
    }
    network, _ = user_network()
    with Machine(*kernel_boot(), *network, *seed(no_cloud_iso(tmp_path / "seed.iso", files))) as guest:
        guest.wait_for("virtpod guest: user-data applied")
        guest.wait_for("virtpod guest: ready")
        assert "10.0.2.77/24" in guest.shell("cat /run/seen")
        assert guest.shell("hostname") == "scripted"
        assert guest.shell("cat /root/.ssh/authorized_keys") == KEY
        assert guest.shell("cat /sys/class/net/eth0/mtu") == "1400"
        assert "10.0.2.2" in guest.shell("ip route show default")
        assert guest.shell("cat /etc/resolv.conf") == "nameserver 10.0.2.3\nsearch lab.test"


def test_config_drive(tmp_path: Path) -> None:
    files = {
        "openstack/latest/meta_data.json": json.dumps({"hostname": "driven", "public_keys": {"0": KEY}}),
        "openstack/latest/user_data": "#!/bin/sh\necho ran > /run/ran\n",
    }
    with Machine(*kernel_boot(), *seed(no_cloud_iso(tmp_path / "seed.iso", files, "config-2"))) as guest:
        guest.wait_for("virtpod guest: user-data applied")
        guest.wait_for("virtpod guest: ready")
        assert guest.shell("hostname; cat /run/ran") == "driven\nran"
        assert guest.shell("cat /root/.ssh/authorized_keys") == KEY


def test_agent_ssh_and_ticks(tmp_path: Path) -> None:
    """The agent answers on its port, dropbear lets the key's owner in, the clock ticks on the console."""
    subprocess.run(["dropbearkey", "-t", "ed25519", "-f", tmp_path / "key"], check=True, capture_output=True)
    shown = subprocess.run(["dropbearkey", "-y", "-f", tmp_path / "key"], check=True, capture_output=True, text=True)
    public = next(line for line in shown.stdout.splitlines() if line.startswith("ssh-ed25519"))
    iso = no_cloud_iso(tmp_path / "seed.iso", {"user-data": f"#cloud-config\nssh_authorized_keys: ['{public}']\n"})
    agent_socket = tmp_path / "agent"
    agent = (
        f"-device virtio-serial -chardev socket,path={agent_socket},server=on,wait=off,id=agent "
        "-device virtserialport,chardev=agent,name=org.qemu.guest_agent.0"
    )
    network, ports = user_network(22)
    with Machine(*kernel_boot("virtpod.ticks"), *network, *seed(iso), *agent.split()) as guest:
        guest.wait_for("virtpod guest: ready")
        assert agent_answer(agent_socket, "guest-get-host-name") == {"host-name": "guest"}
        client = [
            "dbclient",
            "-y",
            "-y",
            "-i",
            str(tmp_path / "key"),
            "-p",
            str(ports[22]),
            "root@127.0.0.1",
            "hostname",
        ]
        answer = subprocess.run(
            client,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin"},
        )
        assert answer.stdout == "guest\n", answer.stderr
        count = int(guest.text.rsplit("tick ", 1)[1].split()[0])
        guest.wait_for(f"tick {count + 2}")


def agent_answer(path: Path, command: str) -> object:
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        connection.sendall(json.dumps({"execute": command}).encode() + b"\n")
        return json.loads(connection.makefile().readline())["return"]


def test_reboot_comes_back() -> None:
    with Machine(*disk_boot()) as guest:
        guest.wait_for("virtpod guest: ready")
        assert guest.process.stdin is not None
        guest.process.stdin.write(b"reboot\n")
        guest.process.stdin.flush()
        deadline = time.monotonic() + 30
        while guest.text.count("virtpod guest: up") < 2:
            assert time.monotonic() < deadline, guest.text[-500:]
            guest._read(1.0)
