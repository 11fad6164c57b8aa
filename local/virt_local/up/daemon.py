"""`up --detach`: the supervisor goes into the background, and the command returns when all is ready, or says why not.

The two talk over a pipe: lines of progress, and at the end `READY`, or `FAILED`, the exit code and the reason.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from select import select

from virt_local.up.errors import UpError, place_error
from virt_local.up.processes import open_log
from virt_local.up.progress import Progress

_READY, _FAILED = "\x00READY", "\x00FAILED"
_DEADLINE_S = 240.0

Serve = Callable[[Progress, Callable[[], None]], None]


def detach(serve: Serve, log_file: Path, emit: Callable[[str], None]) -> None:
    """Returns in the caller when the background process is ready; raises UpError when it failed."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _become_daemon()
        _serve(serve, log_file, write_end)
    os.close(write_end)
    os.waitpid(child, 0)
    _follow(read_end, emit)


def _become_daemon() -> None:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)


def _serve(serve: Serve, log_file: Path, write_end: int) -> None:
    """Runs in the background process and never returns."""
    code = 1
    pipe = _Pipe(write_end)
    try:
        try:
            _redirect(log_file)
            serve(Progress(pipe.line), lambda: pipe.finish(_READY))
            code = 0
        except UpError as err:
            code = err.exit_code
            pipe.finish(f"{_FAILED} {err.exit_code} {err.log or '-'} {err}")
        except OSError as err:
            pipe.finish(f"{_FAILED} 2 - {place_error(err)}")
            raise
        except BaseException as err:
            pipe.finish(f"{_FAILED} 1 - {type(err).__name__}: {err}")
            raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log_file: Path) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    with open_log(log_file) as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.close(null)


class _Pipe:
    """The writer's side. A reader that has gone away must not stop the supervisor."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def line(self, text: str) -> None:
        if self._descriptor < 0:
            return
        try:
            os.write(self._descriptor, f"{text}\n".encode())
        except BrokenPipeError:
            self._close()

    def finish(self, text: str) -> None:
        self.line(text.replace("\n", " "))
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _follow(read_end: int, emit: Callable[[str], None]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    buffered = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select([read_end], [], [], left)[0]:
            raise UpError(f"virt-local did not come up within {_DEADLINE_S:.0f} s", log="supervisor")
        data = os.read(read_end, 65536)
        if not data:
            raise UpError("the supervisor ended without saying why", log="supervisor")
        *lines, buffered = (buffered + data).split(b"\n")
        for line in lines:
            if _understood(line.decode(errors="replace"), emit):
                return


def _understood(line: str, emit: Callable[[str], None]) -> bool:
    """True at READY."""
    if line == _READY:
        return True
    if line.startswith(_FAILED):
        _, code, log, reason = line.split(" ", 3)
        raise UpError(reason, log="" if log == "-" else log, exit_code=int(code))
    emit(line)
    return False
