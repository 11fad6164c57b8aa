"""Kubernetes' refusals as gRPC statuses."""

from __future__ import annotations

import pytest
from google.rpc import status_pb2
from grpc import StatusCode

from virt_api.automation.failures import DETAILS_KEY, Failure, from_api, from_problem
from virt_api.automation.guard import failure_of, token_of
from virt_api.problems import Problem
from virt_core.apis.meta import StatusCause, StatusDetails
from virt_core.kube.errors import ApiError, Unreachable
from virt_core.rpc.status import failed_precondition
from virt_protos.automation.v1 import automation_pb2 as pb


@pytest.mark.parametrize(
    ("status", "reason", "verb", "code"),
    [
        (400, "BadRequest", False, StatusCode.INVALID_ARGUMENT),
        (401, "Unauthorized", False, StatusCode.UNAUTHENTICATED),
        (403, "Forbidden", False, StatusCode.PERMISSION_DENIED),
        (404, "NotFound", True, StatusCode.NOT_FOUND),
        (409, "Conflict", False, StatusCode.ABORTED),
        (409, "AlreadyExists", False, StatusCode.ALREADY_EXISTS),
        (409, "Conflict", True, StatusCode.FAILED_PRECONDITION),
        (410, "Expired", False, StatusCode.OUT_OF_RANGE),
        (422, "Invalid", False, StatusCode.INVALID_ARGUMENT),
        (429, "TooManyRequests", False, StatusCode.RESOURCE_EXHAUSTED),
        (500, "InternalError", False, StatusCode.INTERNAL),
        (503, "ServiceUnavailable", True, StatusCode.UNAVAILABLE),
        (504, "Timeout", False, StatusCode.DEADLINE_EXCEEDED),
        (599, "", False, StatusCode.INTERNAL),
    ],
)
def test_each_status_has_its_code(status: int, reason: str, verb: bool, code: StatusCode) -> None:
    assert from_api(ApiError(status, reason, "why"), verb=verb).code is code


def test_nobody_answered() -> None:
    assert from_api(Unreachable("no answer")).code is StatusCode.UNAVAILABLE


def test_causes_are_in_the_message_and_in_the_trailer() -> None:
    causes = [
        StatusCause("FieldValueInvalid", "is odd", "spec.a"),
        StatusCause("FieldValueRequired", "told already", "b"),
    ]
    failure = from_api(ApiError(422, "Invalid", "no: told already", StatusDetails(causes=causes)))
    assert failure.message == "no: told already; spec.a: is odd"
    ((key, value),) = failure.trailer()
    status = status_pb2.Status.FromString(value)
    error = pb.Error()
    assert key == DETAILS_KEY
    assert status.code == StatusCode.INVALID_ARGUMENT.value[0]
    assert status.details[0].Unpack(error)
    assert [(c.type, c.field) for c in error.causes] == [("FieldValueInvalid", "spec.a"), ("FieldValueRequired", "b")]
    assert (error.code, error.reason) == (422, "Invalid")


def test_a_trailer_fits_whatever_the_server_says() -> None:
    """Clients take 8 KiB of trailing metadata and break off the call beyond."""
    causes = [StatusCause(reason="FieldValueInvalid", message="m" * 5000, field="f" * 5000) for _ in range(50)]
    failure = from_api(ApiError(422, "Invalid", "ü" * 100_000, StatusDetails(causes=causes)))
    size = len(failure.trailer()[0][1]) * 4 / 3 + len(failure.message.encode())
    assert size < 8000


def test_every_exception_we_know_becomes_a_failure() -> None:
    assert getattr(failure_of(Problem(409, "not now")), "code", None) is StatusCode.FAILED_PRECONDITION
    assert getattr(failure_of(ApiError(404, "NotFound", "x")), "code", None) is StatusCode.NOT_FOUND
    assert getattr(failure_of(failed_precondition("x")), "code", None) is StatusCode.FAILED_PRECONDITION
    assert failure_of(KeyError("surprise")) is None
    own = Failure(StatusCode.ABORTED, "x")
    assert failure_of(own) is own
    assert from_problem(Problem(401, "who?")).code is StatusCode.UNAUTHENTICATED


def test_a_token_is_taken_from_the_metadata() -> None:
    assert token_of([("x", "y"), ("authorization", "bearer  abc ")]) == "abc"


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer  ", "Basic abc", "Bearer a b", "Bearer a\tb", "Bearer " + "x" * 20000]
)
def test_what_is_not_a_token(value: str) -> None:
    with pytest.raises(Problem) as refused:
        token_of([("authorization", value)])
    assert refused.value.code == 401
    for metadata in (None, [], [("authorization", "Bearer a"), ("authorization", "Bearer b")]):
        with pytest.raises(Problem):
            token_of(metadata)
