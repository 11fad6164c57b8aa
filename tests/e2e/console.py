"""A guest's serial console, driven through the real `virtctl console` on a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import time
from types import TracebackType

from .engine import BIN, Engine


class Console:
    """`with Console(engine, ns, name) as console: console.expect("…")`"""

    def __init__(self, engine: Engine, namespace: str, name: str) -> None:
        self._engine = engine
        self._args = [str(BIN / "virtctl"), "console", name, "-n", namespace]
        self.seen = ""

    def __enter__(self) -> Console:
        self._fd, slave = pty.openpty()
        self._process = subprocess.Popen(
            self._args,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=self._engine.env(),
            close_fds=True,
            start_new_session=True,
        )
        os.close(slave)
        # What is typed before the terminal is raw would be thrown away with the switch.
        self.expect("Connected to the console", within_s=60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, b"\x1d")
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=5)
        os.close(self._fd)

    def leave(self) -> int:
        """Presses ^] and gives virtctl's exit code."""
        os.write(self._fd, b"\x1d")
        return self._process.wait(timeout=5)

    def send(self, line: str) -> None:
        os.write(self._fd, line.encode() + b"\r")

    def read(self, for_s: float) -> str:
        """What arrives within `for_s` seconds."""
        start, deadline = len(self.seen), time.monotonic() + for_s
        while (left := deadline - time.monotonic()) > 0:
            self._take(left)
        return self.seen[start:]

    def expect(self, text: str, *, within_s: float = 60, after: int = 0) -> int:
        """Waits for `text`; gives the position behind it, for the next `after`."""
        deadline = time.monotonic() + within_s
        while (at := self.seen.find(text, after)) < 0:
            left = deadline - time.monotonic()
            if left <= 0 or (self._process.poll() is not None and not self._take(0)):
                raise AssertionError(f"{text!r} not on the console within {within_s} s; seen: {self.seen[-2000:]!r}")
            self._take(left)
        return at + len(text)

    def prompt(self, *, within_s: float = 120) -> None:
        """Presses Enter until the guest's shell answers: a guest that still boots swallows what is typed."""
        deadline = time.monotonic() + within_s
        mark = len(self.seen)
        while "guest# " not in self.seen[mark:]:
            if time.monotonic() > deadline:
                raise AssertionError(f"no prompt within {within_s} s; seen: {self.seen[-2000:]!r}")
            self.send("")
            self.read(0.5)

    def boot_id(self) -> str:
        """Changes with each start of the guest. The kernel may say something in between."""
        said = self.shell("cat /proc/sys/kernel/random/boot_id")
        match = re.search(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", said)
        assert match is not None, said
        return match.group()

    def shell(self, command: str, *, within_s: float = 30) -> str:
        """Runs one command in the guest's shell and gives its output."""
        mark = len(self.seen)
        self.send(f"{command}; echo done-$((40+2))-$?")
        end = self.expect("done-42-", within_s=within_s, after=mark)
        return self.seen[mark:end]

    def _take(self, timeout: float) -> bool:
        if not select.select([self._fd], [], [], min(timeout, 0.5))[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)
