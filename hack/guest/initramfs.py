"""Writes the guest's root file system as a cpio archive, without root and with the same bytes each time."""

from __future__ import annotations

import lzma
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from packages import BuildError, run

# Kernel modules, in the order of loading; what they depend on comes before them by itself.
MODULES = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "evdev",
    "button",
    "isofs",
    "virtio_scsi",
    "sd_mod",
    "sr_mod",
    "ata_piix",
    "nls_cp437",
    "nls_iso8859-1",
    "nls_ascii",
    "vfat",
    "virtio-rng",
    "virtio_balloon",
    "virtio_input",
    "qemu_fw_cfg",
    "pvpanic-mmio",
    "virtio_mem",
    "efivarfs",
    "virtiofs",
]

BINARIES = {
    "bin/busybox": "usr/bin/busybox",
    "usr/sbin/dropbear": "usr/sbin/dropbear",
    "usr/bin/dropbearkey": "usr/bin/dropbearkey",
    "usr/sbin/qemu-ga": "usr/sbin/qemu-ga",
    "usr/sbin/dhcp6c": "usr/sbin/dhcp6c",
    # Where dropbear looks for it; today's scp speaks SFTP, older ones start scp on the other side.
    "usr/lib/sftp-server": "usr/lib/openssh/sftp-server",
    "usr/bin/scp": "usr/bin/scp",
    # busybox here serves no UDP.
    "usr/sbin/inetd": "usr/sbin/inetutils-inetd",
}
DIRECTORIES = [
    "dev",
    "proc",
    "sys",
    "run",
    "tmp",
    "mnt",
    "root",
    "sbin",
    "var",
    "var/lib",
    "var/log",
    "lib",
    "lib64",
    "lib/modules",
    "usr/sbin",
    "usr/bin",
]
SIGNATURE_MARK = b"~Module signature appended~\n"


class Cpio:
    """The "newc" format, which the kernel unpacks. Times are zero and owners root, so equal input gives equal bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._names: set[str] = set()

    def add(self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        if name in self._names:
            return
        for parent in reversed(Path(name).parents[:-1]):
            if str(parent) not in self._names:
                self.add(str(parent), stat.S_IFDIR | 0o755)
        self._names.add(name)
        number = len(self._names)
        encoded = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._parts += [_padded(header + encoded), _padded(data)]

    def file(self, name: str, data: bytes, executable: bool = False) -> None:
        self.add(name, stat.S_IFREG | (0o755 if executable else 0o644), data)

    def link(self, name: str, target: str) -> None:
        self.add(name, stat.S_IFLNK | 0o777, target.encode())

    def close(self) -> bytes:
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def build(unpacked: Path, overlay: Path) -> bytes:
    archive = Cpio()
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("dev/ttyS0", stat.S_IFCHR | 0o600, device=(4, 64))
    archive.add("dev/null", stat.S_IFCHR | 0o666, device=(1, 3))
    for name in DIRECTORIES:
        archive.add(name, stat.S_IFDIR | (0o1777 if name == "tmp" else 0o755))
    _add_overlay(archive, overlay)
    _add_programs(archive, unpacked)
    _add_modules(archive, unpacked)
    return archive.close()


def _add_overlay(archive: Cpio, overlay: Path) -> None:
    for path in sorted(overlay.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            archive.file(str(path.relative_to(overlay)), data, executable=data.startswith(b"#!"))
    archive.link("sbin/shutdown", "../usr/sbin/shutdown")


def _add_programs(archive: Cpio, unpacked: Path) -> None:
    sources = {name: _file(unpacked, source) for name, source in BINARIES.items()}
    for name, source in sources.items():
        archive.file(name, source.read_bytes(), executable=True)
    for applet in run(str(sources["bin/busybox"]), "--list-full").split():
        archive.link(applet, "/bin/busybox")
    archive.link("sbin/init", "/bin/busybox")
    for name, library in _libraries(unpacked, sources.values()).items():
        archive.file(name, library.read_bytes(), executable=True)


def _file(root: Path, name: str) -> Path:
    if not (root / name).is_file():
        raise BuildError(f"the packages hold no /{name}")
    return root / name


def _libraries(unpacked: Path, programs: Iterable[Path]) -> dict[str, Path]:
    """Asks the unpacked loader itself, so that the host's libraries never get in."""
    loader = _file(unpacked, "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    found = {"lib64/ld-linux-x86-64.so.2": loader}
    for program in programs:
        if program.name == "busybox":
            continue
        listed = run(str(loader), "--library-path", str(loader.parent), "--list", str(program))
        for name, path in re.findall(r"^\s*([^/\s]+) => (/\S+)", listed, re.MULTILINE):
            if not Path(path).is_relative_to(unpacked):
                raise BuildError(f"{program.name} needs {name}, which is in none of the packages")
            found[f"lib/x86_64-linux-gnu/{name}"] = Path(path)
    return found


def _add_modules(archive: Cpio, unpacked: Path) -> None:
    paths = (unpacked / "usr/lib/modules").rglob("*.ko*")
    available = {path.name.partition(".ko")[0].replace("-", "_"): path for path in paths}
    order: list[str] = []
    for module in MODULES:
        _append_with_dependencies(module.replace("-", "_"), available, order)
    for module in order:
        archive.file(f"lib/modules/{module}.ko", _unsigned(_module(available[module])))
    archive.file("lib/modules/order", "".join(f"{module}\n" for module in order).encode())


def _append_with_dependencies(module: str, available: dict[str, Path], order: list[str]) -> None:
    if module in order or module not in available:
        return
    declared = re.search(rb"\0depends=([^\0]*)\0", _module(available[module]))
    for dependency in (declared.group(1).decode() if declared else "").split(","):
        if dependency:
            _append_with_dependencies(dependency.replace("-", "_"), available, order)
    order.append(module)


def _module(path: Path) -> bytes:
    """Unpacked, as the guest's busybox loads it; since Debian 13 they come compressed."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def _unsigned(module: bytes) -> bytes:
    """Checking an RSA signature costs an emulated CPU more than loading the module, and nothing here relies on it."""
    if not module.endswith(SIGNATURE_MARK):
        return module
    end = len(module) - len(SIGNATURE_MARK)
    signature = int.from_bytes(module[end - 4 : end], "big")
    return module[: end - 12 - signature]
