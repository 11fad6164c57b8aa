"""One machine for all tests: its boot is what takes the time."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Space, engine, pair
from tests.e2e.engine import GUEST_IMAGE, ROOT, Engine, eventually

__all__ = ["engine", "pair"]

LAYOUT = ROOT / ".build/debian-guest"
IMAGE = "virtpod.internal/debian:v1"
NAMESPACE = "debian"
#: What the other disks hold: the small test guest's disk, of which so much is compared.
BYTES = ROOT / ".build/guest.parts/files/disk/disk.img"
COMPARED = 1 << 20
BUSES = ("virtio", "sata", "scsi", "usb")
USER_DATA = """\
#cloud-config
hostname: genuine
users:
  - name: ana
    shell: /bin/bash
    sudo: "ALL=(ALL) NOPASSWD:ALL"
    ssh_authorized_keys: ["{key}"]
  - name: bert
    shell: /bin/bash
write_files:
  - path: /etc/told
    content: "by cloud-init\\n"
"""
NETWORK_DATA = """\
version: 2
ethernets:
  enp1s0:
    dhcp4: true
"""
BOOT_S = 600


class Debian:
    """The running machine, as its users reach it: ana by a key from cloud-init, bert by one that the agent brings."""

    def __init__(self, space: Space, keys: Path) -> None:
        self.space, self.keys = space, keys

    @property
    def vmi(self) -> Any:
        return self.space.vmi("genuine")

    def ssh_words(self, command: str, user: str) -> list[str]:
        flags = ["-i", str(self.keys / user), "--known-hosts", str(self.keys / "known")]
        flags += ["-t", "-o StrictHostKeyChecking=accept-new", "-t", "-o IdentitiesOnly=yes"]
        return ["ssh", f"{user}@vmi/genuine", *flags, "-c", command]

    def run(self, command: str, user: str = "ana") -> str:
        """What a command of the user's prints."""
        return self.space.virtctl(*self.ssh_words(command, user), timeout=90).strip()


def make_key(path: Path) -> str:
    """Makes a pair of keys; gives the public one."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


def compared_digest() -> str:
    with BYTES.open("rb") as file:
        return hashlib.sha256(file.read(COMPARED)).hexdigest()


def manifest(public_key: str) -> dict[str, Any]:
    disks: list[dict[str, Any]] = [{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1}]
    disks += [{"name": bus, "serial": f"serial-{bus}", "disk": {"bus": bus}} for bus in BUSES]
    disks.append({"name": "seed", "disk": {"bus": "virtio"}})
    volumes: list[dict[str, Any]] = [{"name": "root", "containerDisk": {"image": IMAGE}}]
    volumes += [{"name": bus, "containerDisk": {"image": GUEST_IMAGE}} for bus in BUSES]
    seed = {"userData": USER_DATA.format(key=public_key), "networkData": NETWORK_DATA}
    volumes.append({"name": "seed", "cloudInitNoCloud": seed})
    agent = {"qemuGuestAgent": {"users": ["bert"]}}
    given = {"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": agent}}
    ready = {"exec": {"command": ["test", "-e", "/run/cloud-init/result.json"]}, "periodSeconds": 3}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "domain": {
            # Two, because every one of them takes part when the firmware writes a variable under emulation.
            "cpu": {"sockets": 1, "cores": 1, "threads": 2},
            "memory": {"guest": "768Mi"},
            "features": {"smm": {"enabled": True}},
            "firmware": {"bootloader": {"efi": {"secureBoot": True}}},
            "devices": {
                "tpm": {},
                "disks": disks,
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "accessCredentials": [given],
        "readinessProbe": ready | {"timeoutSeconds": 10},
        "volumes": volumes,
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "genuine"},
        "spec": spec,
    }


@pytest.fixture(scope="session")
def debian(pair: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    """Ready when its cloud-init has ended, as the readiness probe asks in it. It can go to a second node."""
    pair.take_image(LAYOUT, IMAGE)
    folder = tmp_path_factory.mktemp("keys")
    pair.kubectl("create", "namespace", NAMESPACE)
    space = Space(pair, NAMESPACE)
    try:
        secret = {"stringData": {"one": make_key(folder / "bert")}}
        space.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}} | secret)
        space.apply(manifest(make_key(folder / "ana")))
        space.ready("genuine", within_s=BOOT_S)
        machine = Debian(space, folder)
        eventually(lambda: machine.run("true") == "", within_s=60, what="ana gets in")
        yield machine
    finally:
        pair.drop_namespace(NAMESPACE)
