"""Runs inside the launcher's image: starts a machine that has one of everything a VMI may ask for.

QEMU loads its firmware, boot ROMs and device modules when a machine starts, so what the image lacks shows here.
Each machine starts paused: no guest runs, and the emulated processor costs nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import libvirt
from in_image import libvirt_of_the_image

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
    Path("/dev/urandom").exists() or sys.exit("no /dev/urandom here")
    with libvirt_of_the_image() as (connection, daemon, folder):
        for name, xml in machines(folder).items():
            try:
                connection.createXML(xml, libvirt.VIR_DOMAIN_START_PAUSED).destroy()
            except libvirt.libvirtError as error:
                sys.exit(f"{name}: {error}\n{daemon.last_words()}")
            print(f"{name} started")


if __name__ == "__main__":
    main()
