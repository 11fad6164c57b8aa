"""libvirt's connection to the other side of a move, and the one thing that keeps a guest from running twice.

libvirt stops the guest here, asks the other side to let it run there, and waits for the answer. If it loses the
connection in that moment it takes the answer for a no and lets the guest run here, though it may run there by now. So
libvirt never sees such a loss: it is connected to us, who live and die with it, and we pass its bytes on. When the way
on breaks while the guest stands still, we keep libvirt waiting until somebody who knows has settled it. While the guest
runs nothing is in doubt: the question has not been asked yet, and the loss is passed on at once.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

from virt_core.runtime.logs import get_logger
from virt_launcher.moves.fate import is_held

log = get_logger(__name__)

_CHUNK = 64 * 1024
_CONNECT_S = 10.0
_LOOK_S = 0.2
#: When libvirt takes its leave of the other side, that one may hang up first; libvirt itself follows at once.
_LEAVE_S = 1.0


class Wire:
    def __init__(self, path: str, onward: str, stands_still: Callable[[], bool], on_news: Callable[[], None]) -> None:
        """`stands_still` says whether the guest is stopped, and says yes when it cannot tell."""
        self._path, self._onward = path, onward
        self._stands_still, self._on_news = stands_still, on_news
        self._settled = threading.Event()
        self._listener: socket.socket | None = None
        self.held = False

    def open(self) -> None:
        if os.path.exists(self._path):
            os.unlink(self._path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self._path)
        self._listener.listen(4)
        threading.Thread(target=self._accept, args=(self._listener,), name="move-wire", daemon=True).start()

    def settle(self) -> None:
        """What is held is let go."""
        self._settled.set()

    def close(self) -> None:
        self.settle()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            os.unlink(self._path)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return  # Closed.
            threading.Thread(target=self._pass_on, args=(near,), name="move-wire", daemon=True).start()

    def _pass_on(self, near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as far:
            try:
                far.settimeout(_CONNECT_S)
                far.connect(self._onward)
                far.settimeout(None)
            except OSError as error:
                log.warning("the other side of the move is not reached", error=str(error))
                return
            left = threading.Event()
            threading.Thread(target=self._outward, args=(near, far, left), name="move-wire", daemon=True).start()
            _copy(far, near)
            # The far side is gone, or libvirt has hung up and the other direction told it so.
            if is_held(left.is_set(), self._stands_still()):
                self._hold(left)
            _end(near)  # Closing alone would not wake who waits for its bytes.

    def _outward(self, near: socket.socket, far: socket.socket, left: threading.Event) -> None:
        if _copy(near, far):
            left.set()  # libvirt itself hung up: it has its answer.
        _end(far)

    def _hold(self, left: threading.Event) -> None:
        if left.wait(_LEAVE_S):
            return
        log.warning("the other side was lost while the guest stood still: it stays so until its fate is known")
        self.held = True
        self._on_news()
        # It may run again without us: the loss was also that of its memory on the way, so libvirt never asked.
        while not self._settled.wait(_LOOK_S) and not left.is_set() and self._stands_still():
            pass
        self.held = False
        self._on_news()


def _copy(source: socket.socket, sink: socket.socket) -> bool:
    """Until one of them ends. True: the source did, in an orderly way."""
    while True:
        try:
            data = source.recv(_CHUNK)
        except OSError:
            return False
        if not data:
            return True
        try:
            sink.sendall(data)
        except OSError:
            return False


def _end(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # It has ended already.
