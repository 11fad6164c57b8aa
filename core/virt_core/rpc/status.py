"""Failures that cross a process border, as gRPC status codes with a sentence that names object and expectation.

A servicer raises `RpcFailure` (or a short form of it such as `not_found(…)`); the server turns it into the status. The
caller catches `grpc.RpcError` and reads it with `failure_of`.
"""

from __future__ import annotations

from typing import Any

import grpc


class RpcFailure(Exception):
    """What a servicer raises, and what `failure_of` makes of an answer."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    @property
    def transient(self) -> bool:
        """Worth trying again without any change: nobody answered, or not in time."""
        return self.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


#: The name that the contract of the project uses for the same thing.
RpcError = RpcFailure


def invalid_argument(message: str) -> RpcFailure:
    return RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, message)


def failed_precondition(message: str) -> RpcFailure:
    return RpcFailure(grpc.StatusCode.FAILED_PRECONDITION, message)


def not_found(message: str) -> RpcFailure:
    return RpcFailure(grpc.StatusCode.NOT_FOUND, message)


def permission_denied(message: str) -> RpcFailure:
    return RpcFailure(grpc.StatusCode.PERMISSION_DENIED, message)


def unavailable(message: str) -> RpcFailure:
    return RpcFailure(grpc.StatusCode.UNAVAILABLE, message)


def internal(message: str) -> RpcFailure:
    return RpcFailure(grpc.StatusCode.INTERNAL, message)


def failure_of(error: grpc.RpcError) -> RpcFailure:
    """The failure behind what a stub raised."""
    # What a stub raises is a Call as well, which the stubs cannot express.
    call: Any = error
    if not isinstance(call, grpc.Call):
        return RpcFailure(grpc.StatusCode.UNKNOWN, str(error))
    return RpcFailure(call.code(), call.details() or "")
