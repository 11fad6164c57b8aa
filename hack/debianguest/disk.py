"""The guest's disk: a partition that firmware of both kinds starts from, one with the system. Nothing is mounted."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "guest"))

from packages import BuildError, run

SECTOR = 512
MIB = 1 << 20
BOOT_START, BOOT_SIZE = MIB, 64 * MIB
ROOT_START, ROOT_SIZE = BOOT_START + BOOT_SIZE, 1200 * MIB
#: rootfs/etc/fstab and the kernel know the root partition by this number.
DISK_ID = 0x56495254
EFI_SYSTEM, LINUX = 0xEF, 0x83
MBR_CODE = ("/usr/lib/syslinux/mbr/mbr.bin", "/usr/lib/SYSLINUX/mbr.bin")
#: Tuned for an emulated CPU as the small guest is; what a guest does is the same.
ARGUMENTS = (
    f"root=PARTUUID={DISK_ID:08x}-02 ro console=tty0 console=ttyS0 tsc=reliable no_timer_check mitigations=off quiet"
)
GRUB = f"linux /vmlinuz {ARGUMENTS}\ninitrd /initrd.img\nboot\n"
SYSLINUX = f"DEFAULT linux\nPROMPT 0\nLABEL linux\n  KERNEL /vmlinuz\n  INITRD /initrd.img\n  APPEND {ARGUMENTS}\n"


def build(target: Path, root: Path, boot: Path) -> None:
    """`root` is the system's tree, `boot` the one with shim and GRUB, both signed for Secure Boot."""
    with target.open("wb") as image:
        image.truncate(ROOT_START + ROOT_SIZE)
        image.write(_boot_record())
    _fill_boot(target, root, boot)
    run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", str(root), "-E", f"offset={ROOT_START}", str(target),
        f"{ROOT_SIZE // 1024}k")  # fmt: skip


def _fill_boot(target: Path, root: Path, boot: Path) -> None:
    volume, sectors = f"{target}@@{BOOT_START}", str(BOOT_SIZE // SECTOR)
    run("mformat", "-i", volume, "-T", sectors, "-h", "16", "-s", "63", "-c", "8", "-N", f"{DISK_ID:08x}",
        "-v", "BOOT", "-H", str(BOOT_START // SECTOR), "::")  # fmt: skip
    texts = {"grub.cfg": GRUB, "syslinux.cfg": SYSLINUX}
    for name, text in texts.items():
        target.with_name(name).write_text(text)
    run("mmd", "-i", volume, "::/EFI", "::/EFI/BOOT", "::/EFI/debian")
    for source, name in {
        boot / "usr/lib/shim/shimx64.efi.signed": "EFI/BOOT/BOOTX64.EFI",
        boot / "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed": "EFI/BOOT/grubx64.efi",
        target.with_name("grub.cfg"): "EFI/debian/grub.cfg",
        target.with_name("syslinux.cfg"): "syslinux.cfg",
        _only(root / "boot", "vmlinuz-*"): "vmlinuz",
        _only(root / "boot", "initrd.img-*"): "initrd.img",
    }.items():
        run("mcopy", "-i", volume, str(source), f"::/{name}")
    run("syslinux", "-t", str(BOOT_START), "--install", str(target))


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise BuildError(f"{folder} has {len(found)} files named {pattern}, where one was expected")
    return found[0]


def _boot_record() -> bytes:
    codes = [Path(path) for path in MBR_CODE if Path(path).is_file()]
    if not codes:
        raise BuildError("syslinux's mbr.bin is missing: install syslinux-common")
    table = _partition(0x80, EFI_SYSTEM, BOOT_START, BOOT_SIZE) + _partition(0, LINUX, ROOT_START, ROOT_SIZE)
    code = codes[0].read_bytes()[:440].ljust(440, b"\0")
    return code + struct.pack("<IH", DISK_ID, 0) + table.ljust(64, b"\0") + b"\x55\xaa"


def _partition(flag: int, kind: int, start: int, size: int) -> bytes:
    anywhere = b"\xfe\xff\xff"
    return struct.pack("<B3sB3sII", flag, anywhere, kind, anywhere, start // SECTOR, size // SECTOR)
