"""A bus for each memory cell: libvirt and QEMU take it, and the guest finds the device in its cell.

No device of a node is here that could be given away; a plain virtio device sits in its place.
"""

from __future__ import annotations

import re
import shutil
import socket
import time
from pathlib import Path

import pytest

from tests.functional.launcher.sandbox import LAUNCHER_UID, Sandbox, eventually
from virt_launcher.convert.expanders import Near, expand
from virt_launcher.domain.devices import Controller, MemBalloon, Rng, Serial
from virt_launcher.domain.domain import Devices, Domain, to_xml
from virt_launcher.domain.machine import Amount, Cell, Cpu, Features, Os, VCpuCount

pytestmark = pytest.mark.root
MIB = 1 << 20


def machine(box: Sandbox, devices: list[Rng]) -> Domain:
    """Two cells of one vCPU each; the first device is near the second cell, the second one near the first."""
    ports = [Controller(type="pci", index=number, model="pcie-root-port") for number in (1, 2)]
    buses = expand([Near(0, (devices[1],)), Near(1, (devices[0],))], 3)  # type: ignore[arg-type]
    controllers = [Controller(type="pci", index=0, model="pcie-root"), *ports, *buses]
    boot = box.root / "images"
    serial = Serial(type="unix", source_mode="bind", source_path=str(box.root / "private/serial"))
    return Domain(
        type="qemu",
        name="cells",
        memory=Amount(unit="b", value=192 * MIB),
        vcpu=VCpuCount(placement="static", value=2),
        os=Os(type="hvm", arch="x86_64", machine="q35", kernel=str(boot / "vmlinuz"), initrd=str(boot / "initrd.img"),
              cmdline="console=ttyS0 quiet"),
        features=Features(acpi=True),
        cpu=Cpu(
            mode="custom", match="exact", check="none", model="qemu64", sockets=2, cores=1, threads=1,
            cells=[Cell(id=n, cpus=str(n), memory=96 * MIB, unit="b") for n in (0, 1)],
        ),
        devices=Devices(
            controllers=controllers, serials=[serial], memballoon=MemBalloon(model="none"), rngs=devices
        ),
    )  # fmt: skip


def told(wire: socket.socket, question: str, answer: str, within_s: float = 60.0) -> str:
    """Types it until the guest has answered: nobody says when its shell is there."""
    heard, deadline = "", time.monotonic() + within_s
    while time.monotonic() < deadline:
        wire.sendall(f"{question}\n".encode())
        quiet = time.monotonic() + 2
        while time.monotonic() < quiet:
            try:
                heard += wire.recv(4096).decode(errors="replace")
            except TimeoutError:
                continue
            if found := re.search(answer, heard):
                return found[0]
    raise AssertionError(f"the guest did not answer: {heard[-2000:]}")


def test_the_guest_finds_its_devices_in_their_cells(box: Sandbox, guest_files: Path) -> None:
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(guest_files / "boot" / name, box.root / "images" / name)
        (box.root / "images" / name).chmod(0o644)
    box.start()
    box.wait_ready()
    devices = [Rng(model="virtio-non-transitional", backend_model="random", backend="/dev/urandom") for _ in (0, 1)]
    xml = box.root / "private/cells.xml"
    xml.write_text(to_xml(machine(box, devices)))
    shutil.chown(xml, LAUNCHER_UID, LAUNCHER_UID)
    box.virsh("create", "--validate", str(xml))
    path = box.root / "private/serial"
    eventually(path.exists)
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(str(path))
        wire.settimeout(0.2)
        # Both are of the kind 0x1044 (an entropy source); which is which says the number of the bus.
        ask = (
            "for d in /sys/bus/pci/devices/*; do grep -q 0x1044 $d/device &&"
            " echo cell-$(cat $d/numa_node)-of-$(basename $d); done; echo end-$((40+2))"
        )
        answer = told(wire, ask, r"(cell-\d-of-\S+\s+){2}end-42")
    cells = dict(re.findall(r"cell-(\d)-of-0000:([0-9a-f]{2}):", answer))
    assert sorted(cells) == ["0", "1"]
    # Expanders count from the end: the first has the higher number.
    assert int(cells["0"], 16) > int(cells["1"], 16) > 2
