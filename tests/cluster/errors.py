"""Failures in words for the person at the terminal: one sentence that names what is wrong and what to do."""

from __future__ import annotations


class ClusterError(RuntimeError):
    """Why it did not work and what to do about it."""
