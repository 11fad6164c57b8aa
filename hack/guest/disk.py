"""Makes the guest's disk: an MBR, one FAT partition, syslinux, kernel and initramfs. No loop device, no mount."""

from __future__ import annotations

import struct
from pathlib import Path

from packages import BuildError, run

SECTOR = 512
PARTITION_START = 2048 * SECTOR
HEADROOM = 2 << 20
FAT16_LBA = 0x0E
MBR_CODE = ("/usr/lib/syslinux/mbr/mbr.bin", "/usr/lib/SYSLINUX/mbr.bin")
# Fixed, so that two builds give the same bytes.
VOLUME_SERIAL = "56495254"

BOOT_MENU = """\
DEFAULT linux
PROMPT 0
TIMEOUT 0
LABEL linux
  KERNEL /vmlinuz
  INITRD /initrd.img
  APPEND {arguments}
"""


def build(target: Path, kernel: Path, initramfs: Path, arguments: str) -> None:
    size = _partition_size(kernel, initramfs)
    with target.open("wb") as image:
        image.truncate(PARTITION_START + size)
        image.write(_boot_record(size))
    volume = f"{target}@@{PARTITION_START}"
    sectors = str(size // SECTOR)
    run("mformat", "-i", volume, "-T", sectors, "-h", "16", "-s", "63", "-c", "8", "-N", VOLUME_SERIAL,
        "-v", "VIRTPOD", "-H", str(PARTITION_START // SECTOR), "::")  # fmt: skip
    menu = target.with_suffix(".cfg")
    menu.write_text(BOOT_MENU.format(arguments=arguments))
    for source, name in ((menu, "syslinux.cfg"), (kernel, "vmlinuz"), (initramfs, "initrd.img")):
        run("mcopy", "-i", volume, str(source), f"::/{name}")
    menu.unlink()
    run("syslinux", "-t", str(PARTITION_START), "--install", str(target))


def _partition_size(*files: Path) -> int:
    size = sum(file.stat().st_size for file in files) + HEADROOM
    return -(-size // (1 << 20)) * (1 << 20)


def _boot_record(size: int) -> bytes:
    """Boot code that starts the active partition, and a table with that one partition."""
    codes = [Path(path) for path in MBR_CODE if Path(path).is_file()]
    if not codes:
        raise BuildError("syslinux's mbr.bin is missing: install syslinux-common")
    entry = struct.pack(
        "<B3sB3sII", 0x80, b"\xfe\xff\xff", FAT16_LBA, b"\xfe\xff\xff", PARTITION_START // SECTOR, size // SECTOR
    )
    return codes[0].read_bytes()[:440].ljust(446, b"\0") + entry.ljust(64, b"\0") + b"\x55\xaa"
