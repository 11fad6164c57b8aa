"""What is used of each Debian package on hack's lists: programs and files. `make test` asks before it begins, so that
what is missing is one sentence and not a hundred failed tests. A rule test holds lists and table together.

Usage: python -m tests.needs run|cluster
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LISTS = {"run": ROOT / "hack/apt-packages.txt", "cluster": ROOT / "hack/apt-packages-cluster.txt"}
_SEARCH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"

#: Package → programs by name, other files by path or pattern.
RUN: Mapping[str, tuple[str, ...]] = {
    "python3-venv": ("/usr/lib/python3*/ensurepip/__init__.py",),
    "python3-dev": ("/usr/include/python3*/Python.h",),
    "gcc": ("gcc",),
    "pkg-config": ("pkg-config",),
    "libvirt-dev": ("/usr/lib/*/pkgconfig/libvirt.pc",),
    "libvirt-daemon": ("libvirtd",),
    "libvirt-daemon-driver-qemu": ("/usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so",),
    "libvirt-clients": ("virsh",),
    "qemu-system-x86": ("qemu-system-x86_64",),
    "qemu-system-common": ("qemu-pr-helper",),
    "qemu-utils": ("qemu-img",),
    "ovmf": ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_CODE_4M.ms.fd"),
    "swtpm": ("swtpm",),
    "swtpm-tools": ("swtpm_setup",),
    "runc": ("runc",),
    "conmon": ("conmon",),
    "skopeo": ("skopeo",),
    "containernetworking-plugins": ("/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/portmap"),
    "nftables": ("nft",),
    "libnftables1": ("/usr/lib/*/libnftables.so.1",),
    "dnsmasq-base": ("dnsmasq",),
    "iproute2": ("ip",),
    "procps": ("pgrep", "ps"),
    # The kernel calls it for bridges, TAPs and firewall rules.
    "kmod": ("modprobe",),
    "ca-certificates": ("/etc/ssl/certs/ca-certificates.crt",),
    "busybox-static": ("busybox",),
    "dropbear-bin": ("dropbearkey",),
    "lz4": ("lz4",),
    "mtools": ("mformat", "mcopy"),
    "syslinux": ("syslinux",),
    "syslinux-common": ("/usr/lib/syslinux/mbr/mbr.bin",),
    "zstd": ("zstd",),
    "libxml2-utils": ("xmllint",),
    "openssh-client": ("ssh", "scp", "ssh-keygen"),
    "xfsprogs": ("mkfs.xfs",),
}
CLUSTER: Mapping[str, tuple[str, ...]] = {
    "gcc": ("gcc",),
    "pkg-config": ("pkg-config",),
    "libseccomp-dev": ("/usr/lib/*/pkgconfig/libseccomp.pc",),
    "libc6-dev": ("/usr/lib/*/libc.a",),
    "containernetworking-plugins": ("/usr/lib/cni/bridge",),
    # kube-proxy's and the kubelet's own.
    "conntrack": ("conntrack",),
    "iptables": ("iptables",),
    "iproute2": ("ip",),
    "nftables": ("nft",),
    "util-linux": ("nsenter", "unshare"),
    "buildah": ("buildah",),
    "mmdebstrap": ("mmdebstrap",),
}
TABLES = {"run": RUN, "cluster": CLUSTER}


def packages(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def present(what: str) -> bool:
    return bool(glob.glob(what)) if what.startswith("/") else shutil.which(what, path=_SEARCH) is not None


def missing(table: Mapping[str, tuple[str, ...]], here: Callable[[str], bool] = present) -> dict[str, str]:
    """Program or file → the package that has it."""
    return {what: package for package, needed in table.items() for what in needed if not here(what)}


def sentence(absent: Mapping[str, str], list_name: str) -> str:
    what = ", ".join(absent)
    names = " ".join(sorted(set(absent.values())))
    return f"these are missing here: {what}; they come with {names}, which {list_name} should list"


def main() -> int:
    which = sys.argv[1]
    absent = missing(TABLES[which])
    if absent:
        print(f"error: {sentence(absent, str(LISTS[which].relative_to(ROOT)))}", file=sys.stderr)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
