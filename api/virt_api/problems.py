"""Failures in the vocabulary of HTTP and Kubernetes: a status code, a reason, a sentence, a Status body. Pure."""

from __future__ import annotations

from typing import Any

from virt_core.apis.base import to_plain
from virt_core.apis.meta import Status, StatusDetails
from virt_core.apis.names import GROUP
from virt_core.kube.errors import ApiError, Conflict, Invalid, NotFound

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Problem(Exception):
    """What the caller gets instead of an answer."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        name: str = "",
        kind: str = "virtualmachineinstance",
        details: StatusDetails | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.name = code, message, name
        self.details = details or (StatusDetails(name=name, group=GROUP, kind=kind) if name else None)

    def document(self) -> dict[str, Any]:
        """A Status."""
        details = self.details
        status = Status(
            status="Failure", message=self.message, reason=_REASONS.get(self.code, ""), code=self.code, details=details
        )
        return {"apiVersion": status.api_version, "kind": status.kind, **to_plain(status)}


class LostRace(Problem):
    """The object changed between our reading and our writing: worth another try."""


def from_api(error: ApiError, name: str, *, kind: str = "virtualmachineinstance") -> Problem:
    """What the API server said about a VM or VMI, passed on."""
    if isinstance(error, NotFound):
        return Problem(404, f'{kind}s.{GROUP} "{name}" not found', name=name, kind=kind)
    if isinstance(error, Invalid) and error.causes:
        return Problem(422, error.message, details=error.details)
    if isinstance(error, (Conflict, Invalid)):
        # The failed test of a JSON patch is a 422 too, without causes.
        return LostRace(409, error.message, name=name, kind=kind)
    if error.status == 400:
        return Problem(400, error.message, name=name, kind=kind)
    if error.status == 0:
        return Problem(503, f"the API server cannot be reached: {error}")
    return Problem(500, f"the API server refused: {error}")
