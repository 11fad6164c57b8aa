"""AdmissionReview in, AdmissionReview out."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from virt_api.admission import bounds
from virt_api.admission.causes import Cause, Denied, Refused
from virt_core.apis.admission import AdmissionRequest, AdmissionResponse, AdmissionReview
from virt_core.apis.base import UNREADABLE, decode
from virt_core.apis.meta import Status, StatusCause, StatusDetails
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Counter

log = get_logger(__name__)

PatchOps = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What goes back with a yes: a JSON patch, and what the user should know."""

    patch: PatchOps = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


#: Returns a JSON patch, more than that, or nothing. Raises Refused or Denied.
Admitter = Callable[[AdmissionRequest], PatchOps | Accepted | None]

MAX_CAUSES = 10
MAX_TEXT = 1000
REVIEWS = Counter("virt_api_admission_reviews_total", "Admission reviews by path and verdict.", ("path", "verdict"))


class BadReview(ValueError):
    """The body is no AdmissionReview."""


def answer(body: bytes, admit: Admitter, path: str = "") -> bytes:
    """The response to one review. Raises BadReview."""
    request = _request(body)
    try:
        accepted = _admitted(request, admit)
    except Refused as refused:
        return _refuse(request, refusal(request, refused.causes), path)
    except RecursionError:
        return _refuse(request, _denial(Denied("the object is nested deeper than virt-api reads")), path)
    except Denied as denied:
        return _refuse(request, _denial(denied), path)
    REVIEWS.inc(path, "allowed")
    if not isinstance(accepted, Accepted):
        accepted = Accepted(accepted or [])
    response = AdmissionResponse(uid=request.uid, allowed=True, warnings=accepted.warnings)
    if accepted.patch:
        response.patch_type = "JSONPatch"
        response.patch = base64.b64encode(msgspec.json.encode(accepted.patch)).decode()
    return _encode(response)


def _admitted(request: AdmissionRequest, admit: Admitter) -> PatchOps | Accepted | None:
    bounds.check(request.object)
    bounds.check(request.old_object)
    try:
        return admit(request)
    except msgspec.ValidationError as error:
        raise Denied(f"the object cannot be read: {error}", 422, "Invalid") from error


def unanswered(body: bytes, message: str, path: str = "") -> bytes:
    """The response to a review that nobody could look at. Raises BadReview."""
    status = Status(status="Failure", reason="Timeout", code=504, message=message)
    return _refuse(_request(body), status, path)


def _refuse(request: AdmissionRequest, status: Status, path: str) -> bytes:
    REVIEWS.inc(path, "refused")
    log.info("refused", kind=request.kind.kind, namespace=request.namespace, name=request.name, error=status.message)
    return _encode(AdmissionResponse(uid=request.uid, allowed=False, status=status))


def _request(body: bytes) -> AdmissionRequest:
    try:
        review = decode(body, AdmissionReview)
    except UNREADABLE as error:
        raise BadReview(f"not an AdmissionReview: {error}") from error
    if review.request is None:
        raise BadReview("the AdmissionReview has no request")
    return review.request


def refusal(request: AdmissionRequest, causes: list[Cause]) -> Status:
    """422 with the causes; the message carries them too, for clients that show nothing else."""
    message = ", ".join(short(cause.sentence) for cause in causes[:MAX_CAUSES])
    if len(causes) > MAX_CAUSES:
        message += f", and {len(causes) - MAX_CAUSES} more validation errors"
    details = StatusDetails(
        name=request.name,
        group=request.kind.group,
        kind=request.kind.kind,
        causes=[
            StatusCause(reason=c.type, message=short(c.message), field=short(c.field)) for c in causes[:MAX_CAUSES]
        ],
    )
    return Status(status="Failure", reason="Invalid", code=422, message=message, details=details)


def _denial(denied: Denied) -> Status:
    return Status(status="Failure", reason=denied.reason, code=denied.code, message=denied.message)


def short(text: str) -> str:
    """A sentence that quotes the object may be as long as the object."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _encode(response: AdmissionResponse) -> bytes:
    review = AdmissionReview(response=response)
    plain = msgspec.to_builtins(review)
    return msgspec.json.encode({"apiVersion": review.api_version, "kind": review.kind, **plain})
