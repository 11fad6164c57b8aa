"""Failures of `virt-local` in words for the person at the terminal."""

from __future__ import annotations


class UpError(RuntimeError):
    """Why it did not work and what to do; `log` names the component whose log says more."""

    def __init__(self, message: str, *, log: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.log = log
        self.exit_code = exit_code
