"""Where `virt-probe` asks: a unix socket that only the launcher's own container sees.

A line of JSON comes, a line of JSON goes. Few may ask at a time, and each within its deadline: a guest that never
answers must not collect threads.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Any

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import LauncherError
from virt_launcher.machine.guest_commands import GuestCommands

log = get_logger(__name__)

_MAX_REQUEST = 64 << 10
_MAX_ASKING = 4
_MAX_TIMEOUT_S = 3600.0
_READ_S = 5.0
_CREDENTIALS = struct.Struct("iII")


class ProbeDoor:
    def __init__(self, path: Path, commands: GuestCommands) -> None:
        self._path, self._commands = path, commands
        self._slots = threading.BoundedSemaphore(_MAX_ASKING)
        self._listener: socket.socket | None = None

    def open(self) -> None:
        """May be called again: the door is opened once."""
        if self._listener is not None:
            return
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._path))
        self._path.chmod(0o600)
        listener.listen(_MAX_ASKING)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="guest-probes", daemon=True).start()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return  # Closed.
            if not self._slots.acquire(blocking=False):
                _say(caller, {"error": f"{_MAX_ASKING} others ask the guest already"})
                continue
            threading.Thread(target=self._serve, args=(caller,), name="guest-probe", daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        try:
            _say(caller, self._answer(caller))
        finally:
            self._slots.release()

    def _answer(self, caller: socket.socket) -> dict[str, Any]:
        if _uid_of(caller) != os.getuid():
            return {"error": "only the launcher's own user may ask"}
        try:
            return self._ask(_read(caller))
        except (LauncherError, OSError) as error:
            return {"error": str(error)}
        except (ValueError, TypeError, OverflowError, RecursionError):
            return {"error": "the request is not understood"}

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        timeout_s = min(max(float(request["timeout"]), 0.1), _MAX_TIMEOUT_S)
        if math.isnan(timeout_s):
            raise ValueError
        if request.get("ping") is True:
            self._commands.ping(timeout_s)
            return {"exitCode": 0}
        command, arguments = request.get("command"), request.get("args", [])
        if not isinstance(command, str) or not all(isinstance(word, str) for word in arguments):
            raise ValueError
        result = self._commands.run(command, arguments, timeout_s)
        return {"exitCode": result.exit_code, "output": result.output}


def _read(caller: socket.socket) -> dict[str, Any]:
    caller.settimeout(_READ_S)
    received = b""
    while not received.endswith(b"\n"):
        piece = caller.recv(8 << 10)
        received += piece
        if not piece or len(received) > _MAX_REQUEST:
            raise ValueError
    request = json.loads(received)
    if not isinstance(request, dict) or "timeout" not in request:
        raise ValueError
    return request


def _say(caller: socket.socket, answer: dict[str, Any]) -> None:
    try:
        caller.sendall(json.dumps(answer).encode() + b"\n")
    except OSError as error:
        log.debug("a probe did not wait for its answer", error=str(error))
    finally:
        caller.close()


def _uid_of(caller: socket.socket) -> int:
    packed = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(packed)[1]
    return uid
