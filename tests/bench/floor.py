"""What the same guest costs without us, raw QEMU and raw libvirt: the floor to measure against."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIRST_LINE = b"virtpod guest"
QEMU = "/usr/bin/qemu-system-x86_64"


@dataclass(frozen=True)
class Start:
    """Seconds from the order to the machine running, and to the guest's first line."""

    running_s: float
    first_line_s: float


@dataclass(frozen=True)
class Boot:
    kernel: Path
    initrd: Path
    args: str = "console=ttyS0 quiet no_timer_check"


def wait_for_line(log: Path, since: float, timeout_s: float = 60) -> float:
    """Seconds from `since` until the guest's first line stands in its console log."""
    while FIRST_LINE not in (log.read_bytes() if log.exists() else b""):
        if time.monotonic() - since > timeout_s:
            raise TimeoutError(f"the guest printed nothing within {timeout_s} s")
        time.sleep(0.01)
    return time.monotonic() - since


def wait_until_running(monitor: Path, timeout_s: float = 10) -> None:
    """Asks QEMU's monitor until it says that the processor runs."""
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX) as sock:
        while sock.connect_ex(str(monitor)) != 0:
            if time.monotonic() > deadline:
                raise TimeoutError("QEMU opens no monitor")
            time.sleep(0.002)
        sock.settimeout(timeout_s)
        lines = sock.makefile()
        lines.readline()
        sock.sendall(b'{"execute": "qmp_capabilities"}\n{"execute": "query-status"}\n')
        while '"running": true' not in lines.readline():
            pass


def raw_qemu(boot: Boot) -> Start:
    """`qemu-system-x86_64` by hand, with the machine that we make."""
    with tempfile.TemporaryDirectory() as folder:
        log, monitor = Path(folder) / "serial.log", Path(folder) / "monitor"
        start = time.monotonic()
        process = subprocess.Popen(
            [
                QEMU, "-M", "q35,accel=tcg", "-cpu", "max", "-m", "128", "-nodefaults", "-display", "none",
                "-kernel", str(boot.kernel), "-initrd", str(boot.initrd), "-append", boot.args,
                "-serial", f"file:{log}", "-qmp", f"unix:{monitor},server=on,wait=off",
            ]
        )  # fmt: skip
        try:
            wait_until_running(monitor)
            return Start(time.monotonic() - start, wait_for_line(log, start))
        finally:
            process.kill()
            process.wait(timeout=10)


DOMAIN = """<domain type='qemu'><name>bench</name><memory unit='MiB'>128</memory><vcpu>1</vcpu>
<os><type machine='q35'>hvm</type><kernel>{kernel}</kernel><initrd>{initrd}</initrd><cmdline>{args}</cmdline></os>
<features><acpi/></features><cpu mode='maximum'/>
<devices><emulator>{qemu}</emulator><serial type='file'><source path='{log}'/></serial>
<memballoon model='none'/></devices>
</domain>"""


NOBODY = 65534
QEMU_CONF = """security_driver="none"
cgroup_controllers=[]
namespaces=[]
remember_owner=0
stdio_handler="file"
"""


class Libvirt:
    """A private libvirt daemon of an ordinary user with a warm capability cache, as each launcher has one."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bench-libvirt-", dir="/var/tmp"))
        for name in ("config/libvirt", "cache", "data", "run"):
            (self._folder / name).mkdir(parents=True)
        (self._folder / "config/libvirt/qemu.conf").write_text(QEMU_CONF)
        conf = self._folder / "libvirtd.conf"
        conf.write_text(f'unix_sock_dir="{self._folder}/run"\nauth_unix_rw="none"\n')
        for path in [self._folder, *self._folder.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
        env = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "XDG_RUNTIME_DIR": str(self._folder / "run")}
        env |= {f"XDG_{kind.upper()}_HOME": str(self._folder / kind) for kind in ("config", "cache", "data")}
        self._daemon = subprocess.Popen(
            ["/usr/sbin/libvirtd", "-f", str(conf)],
            env=env, user=NOBODY, group=NOBODY, extra_groups=[], stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._connection = self._connect()
        self._connection.getDomainCapabilities()

    @property
    def pid(self) -> int:
        return self._daemon.pid

    @property
    def uri(self) -> str:
        return f"qemu+unix:///session?socket={self._folder}/run/libvirt-sock"

    def _connect(self) -> Any:
        import libvirt

        libvirt.registerErrorHandler(lambda *_: None, None)
        deadline = time.monotonic() + 15
        while True:
            try:
                return libvirt.open(self.uri)
            except libvirt.libvirtError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def start(self, boot: Boot) -> Start:
        log = self._folder / f"serial-{time.monotonic_ns()}.log"
        xml = DOMAIN.format(kernel=boot.kernel, initrd=boot.initrd, args=boot.args, qemu=QEMU, log=log)
        begun = time.monotonic()
        domain = self._connection.createXML(xml)
        try:
            return Start(time.monotonic() - begun, wait_for_line(log, begun))
        finally:
            domain.destroy()

    def boot(self, boot: Boot) -> Any:
        """A machine that has booted: its console is quiet."""
        log = self._folder / f"serial-{time.monotonic_ns()}.log"
        begun = time.monotonic()
        domain = self._connection.createXML(
            DOMAIN.format(kernel=boot.kernel, initrd=boot.initrd, args=boot.args, qemu=QEMU, log=log)
        )
        wait_for_line(log, begun)
        _wait_quiet(log)
        return domain

    def move(self, domain: Any, other: Libvirt, port: int) -> tuple[Any, float, int]:
        """`virsh migrate --live --p2p` by plain TCP. The machine there, seconds, milliseconds that it stood still."""
        import libvirt

        flags = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER
        for tries_left in (2, 1, 0):  # The other side does not always listen in time on a busy machine.
            begun = time.monotonic()
            try:
                domain.migrateToURI3(other.uri, {libvirt.VIR_MIGRATE_PARAM_URI: f"tcp://127.0.0.1:{port}"}, flags)
                break
            except libvirt.libvirtError as error:
                if not tries_left or "refused" not in str(error):
                    raise
        took = time.monotonic() - begun
        there = other._connection.lookupByName("bench")
        stats = there.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
        return there, took, int(stats.get("downtime", 0))

    def close(self) -> None:
        self._connection.close()
        self._daemon.terminate()
        self._daemon.wait(timeout=10)
        shutil.rmtree(self._folder, ignore_errors=True)


def _wait_quiet(log: Path, for_s: float = 5.0, within_s: float = 120.0) -> None:
    deadline, since, size = time.monotonic() + within_s, time.monotonic(), -1
    while (now := time.monotonic()) < deadline:
        if (grown := log.stat().st_size) != size:
            since, size = now, grown
        elif now - since > for_s:
            return
        time.sleep(0.2)
    raise TimeoutError(f"the guest still talks after {within_s:.0f} s")


@contextlib.contextmanager
def libvirt() -> Iterator[Libvirt]:
    daemon = Libvirt()
    try:
        yield daemon
    finally:
        daemon.close()


def pss_kib(pid: int) -> int:
    """Proportional set size of one process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0
