"""A local port for exactly one connection: a program, often started by us, that speaks the guest's protocol."""

from __future__ import annotations

import socket
import subprocess
import threading
import time

import click

from virtctl.stream.relay import relay_socket
from virtctl.stream.websocket import Stream

_POLL_S = 0.2
_END_S = 5.0


def serve_one(stream: Stream, listener: socket.socket, program: list[str] | None, timeout_s: float) -> None:
    """Joins the stream with the first connection. ^C ends it in order. Raises ConnectionError when the stream broke."""
    child = _start(program) if program else None
    try:
        connection = _accept(listener, child, timeout_s)
        with connection:
            relay_socket(stream, connection)
    except KeyboardInterrupt:
        return
    finally:
        stream.close()
        if child is not None:
            _end(child)


def _start(program: list[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(program, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise click.ClickException(f"cannot start {program[0]}: {error.strerror}") from error


def _accept(listener: socket.socket, child: subprocess.Popen[bytes] | None, timeout_s: float) -> socket.socket:
    """Without a program of ours there is no limit: somebody will start a viewer by hand."""
    deadline = time.monotonic() + timeout_s
    listener.settimeout(_POLL_S if child else None)
    while True:
        try:
            return listener.accept()[0]
        except TimeoutError as error:
            if child is not None and child.poll() is not None:
                raise click.ClickException(f"{_name(child)} ended with exit code {child.returncode}") from error
            if time.monotonic() >= deadline:
                raise click.ClickException(f"{_name(child)} did not connect within {timeout_s:.0f} s") from error


def _name(child: subprocess.Popen[bytes] | None) -> str:
    """The program, without its arguments."""
    return str(child.args[0]) if child is not None and isinstance(child.args, list) else "the viewer"


def _end(child: subprocess.Popen[bytes]) -> None:
    killer = threading.Timer(_END_S, child.kill)
    killer.start()
    try:
        child.terminate()
        child.wait()
    finally:
        killer.cancel()
