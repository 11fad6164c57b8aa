"""Failures of `virt-local` in words for the person at the terminal."""

from __future__ import annotations

import os


class UpError(RuntimeError):
    """Why it did not work and what to do; `log` names the component whose log says more."""

    def __init__(self, message: str, *, log: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.log = log
        self.exit_code = exit_code


def place_error(err: OSError) -> UpError:
    """The data directory cannot be used."""
    way_out = "choose another place with --data-dir" if os.geteuid() == 0 else "run it again with sudo"
    return UpError(f"{err.filename or 'the data directory'}: {err.strerror or err}; {way_out}.", exit_code=2)


class NetworkError(RuntimeError):
    """A part of the network could not be made or removed; the text names it."""
