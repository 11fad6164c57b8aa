"""Debian's root file system of the guest from packages, as an administrator would have it: systemd, cloud-init, ssh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent / "images"), str(HERE.parent / "guest")]

import debian  # noqa: E402
import host  # noqa: E402
from packages import BuildError  # noqa: E402
from problems import ImageError  # noqa: E402

SUITE = "trixie"
DEADLINE_S = 900
PACKAGES = (
    "systemd-sysv", "udev", "dbus", "iproute2", "linux-image-amd64", "cloud-init", "cloud-guest-utils", "sudo",
    "qemu-guest-agent", "openssh-server",
)  # fmt: skip
#: What the firmware starts; taken out of the packages, without their installers.
BOOT_PACKAGES = ("shim-signed", "grub-efi-amd64-signed")
_DRIVERS = (
    "gpu", "media", "net/wireless", "net/ethernet", "infiniband", "staging", "iio", "hwmon", "usb/serial", "mtd",
    "scsi/qla2xxx", "scsi/lpfc", "bluetooth", "isdn", "comedi", "input/touchscreen",
)  # fmt: skip
#: Texts for readers, and drivers of hardware that no machine of ours has.
WITHOUT = (
    *(f"/usr/share/{name}/*" for name in ("doc", "man", "info", "locale", "i18n")),
    *(f"/usr/lib/modules/*/kernel/drivers/{name}/*" for name in _DRIVERS),
    "/usr/lib/modules/*/kernel/sound/*",
    "/usr/lib/udev/hwdb.d/*",
)


def make(root: Path, boot: Path, log: Path) -> None:
    """Unpacks the system into `root`, and what the firmware starts into `boot`."""
    try:
        sources = debian.sources(SUITE, debian.mirror())
    except ImageError as error:
        raise BuildError(str(error)) from error
    boot.mkdir()
    command = ["mmdebstrap", "--variant=minbase", "--format=directory", f"--include={','.join(PACKAGES)}"]
    command += [f"--aptopt={line}" for line in host.apt_conf(host.apt_dump()).splitlines()]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in WITHOUT]
    # In place before the kernel's package makes its initramfs.
    command += [f'--essential-hook=cp -rT "{HERE}/rootfs" "$1"']
    command += [f'--customize-hook=chroot "$1" sh -c "cd /root && apt-get -q download {" ".join(BOOT_PACKAGES)}"']
    command += [f'--customize-hook=for deb in "$1"/root/*.deb; do dpkg-deb -x "$deb" "{boot}"; rm "$deb"; done']
    command += [f'--customize-hook="{HERE}/finish" "$1"', SUITE, str(root), *sources]
    with log.open("w") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=DEADLINE_S, check=False)
    if done.returncode != 0:
        last = " / ".join(log.read_text(errors="replace").strip().splitlines()[-4:])
        raise BuildError(f"mmdebstrap made no {SUITE}: {last} (log: {log})")
