"""What the service refuses, as exceptions: catch the one that you can handle, `AutomationError` for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from virt_protos.automation.v1 import automation_pb2 as pb

_DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason of a refusal: the field and what is wrong with it."""

    type: str
    field: str
    message: str


class AutomationError(Exception):
    """`code` is the gRPC status, `reason` and `causes` are Kubernetes' own words."""

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "", causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(message or code.name)
        self.code, self.message, self.reason, self.causes = code, message, reason, causes


class Invalid(AutomationError):
    """The request or the object makes no sense; `causes` names the fields."""


class Unauthenticated(AutomationError):
    """No token, or not a valid one."""


class Forbidden(AutomationError):
    """The user may not do this."""


class NotFound(AutomationError):
    pass


class AlreadyExists(AutomationError):
    pass


class Conflict(AutomationError):
    """The object has changed since it was read: read it again."""


class PreconditionFailed(AutomationError):
    """The machine is in a state in which this makes no sense, or what was waited for cannot come any more."""


class Expired(AutomationError):
    """The resource version is too old: list again."""


class Timeout(AutomationError):
    """Not in the time that was given; the message says how far it came."""


class Unavailable(AutomationError):
    """Nobody answers: try again."""


_CLASSES: dict[grpc.StatusCode, type[AutomationError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: Invalid,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Forbidden,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: PreconditionFailed,
    grpc.StatusCode.OUT_OF_RANGE: Expired,
    grpc.StatusCode.DEADLINE_EXCEEDED: Timeout,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
}


def error_of(error: grpc.RpcError) -> AutomationError:
    """The exception for what a stub raised."""
    # What a stub raises is a Call as well, which the stubs cannot express.
    call: Any = error
    code: grpc.StatusCode = call.code()
    found = _details(call.trailing_metadata() or ())
    causes = tuple(Cause(each.type, each.field, each.message) for each in found.causes)
    return _CLASSES.get(code, AutomationError)(code, call.details() or "", found.reason, causes)


def _details(metadata: Any) -> pb.Error:
    found = pb.Error()
    for key, value in metadata:
        if key == _DETAILS_KEY:
            try:
                for detail in status_pb2.Status.FromString(value).details:
                    detail.Unpack(found)
            except DecodeError:
                return pb.Error()
    return found
