"""A Pod's sandbox: a network namespace that a bind mount keeps (no pause process), its addresses and its /etc files."""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path

from virt_core.apis.pods import Pod
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import rfc3339
from virt_local.node import kernel, users
from virt_local.node.cni import Cni
from virt_local.node.hostfiles import HOST_FILE, hostname_of, hosts_file, resolv_conf
from virt_local.node.images.root import OciMount
from virt_local.node.layout import NodeLayout, load, remove_tree, save, write_atomic
from virt_local.node.networks.keeper import PodNetworks
from virt_local.node.runtime.records import SandboxRecord
from virt_local.node.users import PodUsers

log = get_logger(__name__)

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


class Sandboxes:
    def __init__(
        self,
        layout: NodeLayout,
        cni: Cni,
        clock: Clock,
        networks: PodNetworks,
        resolv: Path = HOST_FILE,
        *,
        cluster_dns: tuple[str, ...] = (),
    ) -> None:
        self._cluster_dns = cluster_dns
        self.networks = networks
        self._layout = layout
        self._cni = cni
        self._clock = clock
        self._resolv = resolv
        self._boot_id = kernel.boot_id()

    def open(self, pod: Pod) -> SandboxRecord:
        """Makes the namespace and the files; the network comes with `attach`."""
        meta, now = pod.metadata, rfc3339(self._clock.now())
        record = SandboxRecord(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            boot_id=self._boot_id,
            host_network=pod.spec.host_network,
            start_time=pod.status.start_time or now,
            created_at=now,
        )
        if pod.spec.host_users is False and not record.host_network:
            record.user_base = users.take_range(self._layout.sandbox(meta.uid))
        directory = self._layout.sandbox(meta.uid)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        save(directory / "sandbox.json", record)
        self._write_files(pod, [])
        if not record.host_network:
            self._make_namespace(record)
        return record

    def attach(self, pod: Pod, record: SandboxRecord, node_ips: list[str]) -> None:
        """Connects the Pod and tells its hosts file."""
        uid = record.uid
        directory = self._layout.sandbox(uid)
        if record.host_network:
            record.ips = list(node_ips)
        else:
            record.ips = self._cni.add(uid, self._layout.netns(uid), directory / "network.json")
            self.networks.follow(pod)
        record.attached = True
        self._write_files(pod, record.ips)
        save(directory / "sandbox.json", record)

    def usable(self, record: SandboxRecord) -> bool:
        """False after a reboot, which takes the namespace away and leaves the files."""
        if record.boot_id != self._boot_id or not record.attached:
            return False
        return record.host_network or bool(kernel.mounts_below(self._layout.netns(record.uid)))

    def detach(self, uid: str) -> None:
        """Gives back addresses, links and the namespace. Safe to repeat, and when only a part was made."""
        directory, netns = self._layout.sandbox(uid), self._layout.netns(uid)
        record = self.load(uid)
        if record is None or not record.host_network:
            self.networks.detach(uid)
            mounted = bool(kernel.mounts_below(netns))
            self._cni.delete(uid, netns if mounted else None, directory / "network.json")
        for path in (netns, self._layout.userns(uid)):
            users.forget(path)
        if record is not None and record.user_base:
            users.give_back(record.user_base)
        if record is not None and record.attached:
            record.attached = False
            save(directory / "sandbox.json", record)

    def forget(self, uid: str) -> None:
        remove_tree(self._layout.sandbox(uid))

    def load(self, uid: str) -> SandboxRecord | None:
        try:
            return load(self._layout.sandbox(uid) / "sandbox.json", SandboxRecord)
        except FileNotFoundError:
            return None

    def netns(self, record: SandboxRecord) -> Path | None:
        return None if record.host_network else self._layout.netns(record.uid)

    def users(self, record: SandboxRecord) -> PodUsers | None:
        return PodUsers(self._layout.userns(record.uid), record.user_base) if record.user_base else None

    def mounts(self, uid: str) -> list[OciMount]:
        """The files of /etc that belong to the Pod, not to an image."""
        places = {
            "/etc/hosts": self._layout.pod(uid) / "etc-hosts",
            "/etc/resolv.conf": self._layout.sandbox(uid) / "resolv.conf",
            "/etc/hostname": self._layout.sandbox(uid) / "hostname",
        }
        return [
            {"destination": name, "type": "bind", "source": str(path), "options": ["bind", "rw", "nosuid", "nodev"]}
            for name, path in places.items()
        ]

    def _write_files(self, pod: Pod, ips: list[str]) -> None:
        """In place: a running container has these very files mounted."""
        uid = pod.metadata.uid
        self._layout.pod(uid).mkdir(parents=True, exist_ok=True)
        hostname = hostname_of(pod)
        _write(self._layout.pod(uid) / "etc-hosts", hosts_file(pod, hostname, ips))
        directory = self._layout.sandbox(uid)
        if not ips:
            _write(directory / "hostname", f"{hostname}\n")
            _write(directory / "resolv.conf", resolv_conf(pod, self._resolv, self._cluster_dns))

    def _make_namespace(self, record: SandboxRecord) -> None:
        path, own = self._layout.netns(record.uid), self.users(record)
        users.forget(path)
        if own is None:
            kernel.create_netns(path, _prepare_namespace)
            return
        users.forget(own.path)
        users.make(own, path)
        kernel.in_netns(path, _prepare_namespace)


def _write(path: Path, text: str) -> None:
    if path.exists():
        path.write_text(text)
    else:
        write_atomic(path, text.encode(), 0o644)


def _prepare_namespace() -> bool:
    """Runs inside the new namespace. Addresses come from our own ranges: nobody to ask whether they are taken, which
    would cost each Pod more than a second."""
    for name in ("all", "default"):
        accept_dad = Path(f"/proc/sys/net/ipv6/conf/{name}/accept_dad")
        if accept_dad.exists():
            accept_dad.write_text("0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
    return True
