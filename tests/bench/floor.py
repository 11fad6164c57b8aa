"""What the same guest costs without us, raw QEMU and raw libvirt: the floor to measure against."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    args: str = "console=ttyS0 quiet"


def wait_for_line(log: Path, since: float, timeout_s: float = 60) -> float:
    """Seconds from `since` until the guest's first line stands in its console log."""
    while FIRST_LINE not in (log.read_bytes() if log.exists() else b""):
        if time.monotonic() - since > timeout_s:
            raise TimeoutError(f"the guest printed nothing within {timeout_s} s")
        time.sleep(0.01)
    return time.monotonic() - since


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
            while not monitor.exists():
                time.sleep(0.002)
            return Start(time.monotonic() - start, wait_for_line(log, start))
        finally:
            process.kill()
            process.wait(timeout=10)


DOMAIN = """<domain type='qemu'><name>bench</name><memory unit='MiB'>128</memory><vcpu>1</vcpu>
<os><type machine='q35'>hvm</type><kernel>{kernel}</kernel><initrd>{initrd}</initrd><cmdline>{args}</cmdline></os>
<features><acpi/></features><cpu mode='custom'><model>max</model></cpu>
<devices><emulator>{qemu}</emulator><serial type='file'><source path='{log}'/></serial>
<memballoon model='none'/></devices>
</domain>"""


class Libvirt:
    """A private libvirt daemon with a warm capability cache."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bench-libvirt-"))
        self.uri = f"qemu:///embed?root={self._folder}"
        (self._folder / "etc").mkdir()
        conf = 'security_driver="none"\ncgroup_controllers=[]\nnamespaces=[]\nremember_owner=0\n'
        conf += 'stdio_handler="file"\nuser="root"\ngroup="root"\n'
        (self._folder / "etc" / "qemu.conf").write_text(conf)

    def start(self, boot: Boot) -> Start:
        log = self._folder / f"serial-{time.monotonic_ns()}.log"
        xml = DOMAIN.format(kernel=boot.kernel, initrd=boot.initrd, args=boot.args, qemu=QEMU, log=log)
        script = self._folder / "domain.xml"
        script.write_text(xml)
        code = (
            "import libvirt,sys,time,threading\n"
            "libvirt.virEventRegisterDefaultImpl()\n"
            "def loop():\n  while True: libvirt.virEventRunDefaultImpl()\n"
            "threading.Thread(target=loop,daemon=True).start()\n"
            f"c=libvirt.open({self.uri!r})\nc.getDomainCapabilities()\n"
            "xml=open(sys.argv[1]).read()\nt=time.monotonic()\nd=c.createXML(xml)\n"
            "print(t, time.monotonic(), flush=True)\n"
            "sys.stdin.readline()\nd.destroy()\n"
        )
        import sys

        process = subprocess.Popen(
            [sys.executable, "-c", code, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        assert process.stdin
        try:
            begun, running = map(float, process.stdout.readline().split())
            return Start(running - begun, wait_for_line(log, begun))
        finally:
            process.stdin.write("\n")
            process.stdin.close()
            process.wait(timeout=30)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


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


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
