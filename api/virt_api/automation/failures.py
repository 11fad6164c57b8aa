"""Kubernetes failures as gRPC ones: the code, a sentence, and the causes for programs in the standard trailer."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf import any_pb2
from google.rpc import status_pb2
from grpc import StatusCode

from virt_api.problems import Problem
from virt_core.apis.meta import StatusCause
from virt_core.kube.errors import ApiError
from virt_core.rpc.status import RpcFailure
from virt_protos.automation.v1 import automation_pb2 as pb

DETAILS_KEY = "grpc-status-details-bin"
#: In bytes: all trailers together have to fit into the 8 KiB that clients take.
_MESSAGE_LIMIT = 768
_CAUSE_LIMIT = 200
_FIELD_LIMIT = 100
_CAUSES_LIMIT = 10

_CODES = {
    0: StatusCode.UNAVAILABLE,
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    405: StatusCode.UNIMPLEMENTED,
    408: StatusCode.DEADLINE_EXCEEDED,
    409: StatusCode.ABORTED,
    410: StatusCode.OUT_OF_RANGE,
    413: StatusCode.INVALID_ARGUMENT,
    415: StatusCode.INVALID_ARGUMENT,
    422: StatusCode.INVALID_ARGUMENT,
    429: StatusCode.RESOURCE_EXHAUSTED,
    501: StatusCode.UNIMPLEMENTED,
    502: StatusCode.UNAVAILABLE,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}


class Failure(RpcFailure):
    """What a call ends with; knows the Kubernetes status behind it, if there is one."""

    def __init__(self, code: StatusCode, message: str, error: pb.Error | None = None) -> None:
        super().__init__(code, clip(message, _MESSAGE_LIMIT))
        self.error = error or pb.Error(message=self.message)

    def trailer(self) -> tuple[tuple[str, bytes], ...]:
        detail = any_pb2.Any()
        detail.Pack(self.error)
        number: int = self.code.value[0]
        status = status_pb2.Status(code=number, message=self.message, details=[detail])
        return ((DETAILS_KEY, status.SerializeToString()),)


def from_api(error: ApiError, *, verb: bool = False) -> Failure:
    """`verb`: a lifecycle verb, whose conflict is one with the machine's state, not with another writer."""
    code = _CODES.get(error.status, StatusCode.INTERNAL)
    if error.status == 409:
        code = StatusCode.FAILED_PRECONDITION if verb else code
        code = StatusCode.ALREADY_EXISTS if error.reason == "AlreadyExists" else code
    causes = error.causes[:_CAUSES_LIMIT]
    details = pb.Error(
        code=error.status,
        reason=clip(error.reason, _FIELD_LIMIT),
        message=clip(str(error), _MESSAGE_LIMIT),
        causes=[_cause(c) for c in causes],
    )
    return Failure(code, sentence(str(error), causes), details)


def from_problem(problem: Problem) -> Failure:
    """What our own subresource code says; its conflicts are always about the machine's state."""
    return from_api(ApiError(problem.code, "", problem.message, problem.details), verb=True)


def sentence(message: str, causes: Sequence[StatusCause]) -> str:
    """The message, and every cause that it does not name by itself."""
    missing = [f"{c.field}: {c.message}" if c.field else c.message for c in causes if c.message not in message]
    return "; ".join([message, *missing])


def invalid(message: str) -> Failure:
    return Failure(StatusCode.INVALID_ARGUMENT, message)


def _cause(cause: StatusCause) -> pb.Cause:
    return pb.Cause(
        type=clip(cause.reason, _FIELD_LIMIT),
        field=clip(cause.field, _FIELD_LIMIT),
        message=clip(cause.message, _CAUSE_LIMIT),
    )


def clip(text: str, limit: int) -> str:
    """At most so many bytes; a cut shows."""
    raw = text.encode()
    return text if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "…"
