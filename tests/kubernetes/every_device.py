"""Runs inside the launcher's image: starts a machine that has one of everything a VMI may ask for.

QEMU loads its firmware, boot ROMs and device modules when a machine starts, so what the image lacks shows here.
Each machine starts paused: no guest runs, and the emulated processor costs nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

import libvirt

from virt_launcher.hypervisor.daemon import Daemon
from virt_launcher.process.children import Children, block_signals
from virt_launcher.settings import Paths

OVMF = "/usr/share/OVMF/OVMF"
NICS = ("virtio", "e1000", "e1000e", "rtl8139", "pcnet", "ne2k_pci")
VIDEOS = ("vga", "cirrus", "virtio", "ramfb", "bochs")


def firmware(kind: str, folder: Path) -> str:
    if kind == "bios":
        return "<type arch='x86_64' machine='q35'>hvm</type>"
    suffix, secure = (".ms", "yes") if kind == "secure" else ("", "no")
    return f"""<type arch='x86_64' machine='q35'>hvm</type>
      <loader readonly='yes' secure='{secure}' type='pflash'>{OVMF}_CODE_4M{suffix}.fd</loader>
      <nvram template='{OVMF}_VARS_4M{suffix}.fd'>{folder}/{kind}-nvram.fd</nvram>"""


def machine(name: str, kind: str, devices: str, folder: Path) -> str:
    return f"""<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>
      <os>{firmware(kind, folder)}</os>
      <features><acpi/>{"<smm state='on'/>" if kind == "secure" else ""}</features>
      <cpu mode='custom'><model>qemu64</model></cpu>
      <clock offset='timezone' timezone='Europe/Vienna'/>
      <devices>{devices}</devices></domain>"""


def machines(folder: Path) -> dict[str, str]:
    nics = "".join(
        f"<interface type='user'><model type='{model}'/><boot order='{order}'/></interface>"
        for order, model in enumerate(NICS, 1)
    )
    screen = "<graphics type='vnc'><listen type='socket' socket='{}'/></graphics>"
    common = f"""<tpm model='tpm-tis'><backend type='emulator' version='2.0'/></tpm>
      <sound model='ich9'/><audio id='1' type='none'/>
      <redirdev bus='usb' type='unix'><source mode='bind' path='{folder}/usb'/></redirdev>
      <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
      <input type='tablet' bus='usb'/><watchdog model='i6300esb' action='reset'/><panic model='isa'/>"""
    result = {
        f"screen-{video}": machine(
            f"screen-{video}", "bios", screen.format(folder / video) + f"<video><model type='{video}'/></video>", folder
        )
        for video in VIDEOS
    }
    result["bios"] = machine("bios", "bios", nics + common, folder)
    for kind in ("uefi", "secure"):
        result[kind] = machine(kind, kind, common, folder)
    return result


def main() -> None:
    block_signals()
    children, stop = Children(), threading.Event()
    threading.Thread(target=children.run, args=(stop,), daemon=True).start()
    folder = Path(tempfile.mkdtemp())
    # libvirt keeps a TPM's state and its certificates under the user's home.
    os.environ |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    Path("/dev/urandom").exists() or sys.exit("no /dev/urandom here")
    daemon = Daemon(Paths(private=folder / "private", libvirt=folder / "run"), children)
    daemon.start()
    connection = connect(daemon)
    for name, xml in machines(folder).items():
        try:
            connection.createXML(xml, libvirt.VIR_DOMAIN_START_PAUSED).destroy()
        except libvirt.libvirtError as error:
            sys.exit(f"{name}: {error}\n{daemon.last_words()}")
        print(f"{name} started")
    daemon.stop()


def connect(daemon: Daemon) -> libvirt.virConnect:
    for _ in range(100):
        if daemon.socket.exists():
            return libvirt.open(daemon.uri)
        threading.Event().wait(0.1)
    sys.exit(daemon.last_words())


if __name__ == "__main__":
    main()
