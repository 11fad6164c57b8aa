"""The name server of an instance as a process: a user of its own without any right, in a network of its own.

Pods and guests send it what they like. It has no capability, cannot get one, writes no file, and of the network it sees
what the rules of its namespace let through (`up/isolation.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from virt_local.controllers.services.records import DOMAIN
from virt_local.up.errors import NetworkError

#: Nobody's, and not that of the DHCP servers (virt-netsetup has the next one).
UID = 65526
_LIMITS = ("--nofile=512", "--nproc=64", "--fsize=0", "--core=0", "--as=268435456")
_SOON_S = 1.0
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Server:
    netns: str
    addresses: tuple[str, ...]
    directory: Path
    #: The machine's own list of name servers, or nothing.
    upstream: Path | None

    @property
    def hosts(self) -> Path:
        return self.directory / "hosts"

    @property
    def ports(self) -> Path:
        return self.directory / "ports.conf"

    def command(self) -> list[str]:
        rights = ["--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=KILL"]
        return [
            *("nsenter", f"--net={self.netns}", "--", "prlimit", *_LIMITS, "--", "nice", "-n", "5"),
            *("setpriv", f"--reuid={UID}", f"--regid={UID}", *rights, "--"),
            *("dnsmasq", *self._arguments()),
        ]

    def _arguments(self) -> list[str]:
        return [
            *("--keep-in-foreground", "--pid-file=", "--log-facility=-", "--user=", "--no-hosts", "--bind-interfaces"),
            *(f"--listen-address={address}" for address in self.addresses),
            *(f"--conf-file={self.ports}", f"--addn-hosts={self.hosts}"),
            *(f"--local=/{DOMAIN}/", "--local-ttl=5", "--bogus-priv", "--dns-loop-detect"),
            *("--cache-size=1000", "--dns-forward-max=150"),
            f"--resolv-file={self.upstream}" if self.upstream else "--no-resolv",
        ]


class Process:
    """Used by one thread, which must live as long as the process shall: the kernel ends it with that thread."""

    def __init__(self, server: Server, on_end: Callable[[], None]) -> None:
        self._server = server
        self._on_end = on_end
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._words: deque[str] = deque(maxlen=10)

    def ensure(self) -> bool:
        """True when it had to be started. Raises NetworkError when it ended right after its start: it will again."""
        if self._process is not None and self._process.poll() is None:
            return False
        ended, self._process = self._process, None
        if ended is not None and time.monotonic() - self._started < _SOON_S:
            raise NetworkError(f"dnsmasq ended with code {ended.returncode}: {'; '.join(self._words)}")
        self._start()
        return True

    def read_again(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_S)

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._server.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env={"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")},
            )
        except OSError as error:
            raise NetworkError(f"dnsmasq could not be started: {error}") from error
        self._started = time.monotonic()
        self._words.clear()
        threading.Thread(target=self._listen, args=(self._process,), name="dnsmasq-words", daemon=True).start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """What it says last, for the case that it ends; then whoever keeps it is told."""
        if process.stderr is not None:
            while line := process.stderr.readline(4096):
                self._words.append(line.decode(errors="replace").strip()[:300])
        process.wait()
        if process is self._process:
            self._on_end()
