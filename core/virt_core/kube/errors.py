"""What the API server answers when it does not do what we asked, as exceptions in its own vocabulary."""

from __future__ import annotations

import msgspec

from virt_core.apis.base import decode
from virt_core.apis.meta import Status, StatusCause, StatusDetails


class ApiError(Exception):
    """The API server refused or failed. `status` is the HTTP code, 0 when there was no answer at all."""

    def __init__(self, status: int, reason: str, message: str, details: StatusDetails | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or StatusDetails()

    def __str__(self) -> str:
        return self.message or f"{self.reason or 'error'} ({self.status})"

    @property
    def causes(self) -> list[StatusCause]:
        """For a refused object: which fields, and why."""
        return self.details.causes


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    """The object changed since we read it: read it again."""


class AlreadyExists(ApiError):
    pass


class Gone(ApiError):
    """The resource version is too old for a watch or a continued list: list again."""


class Forbidden(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Invalid(ApiError):
    pass


class Unreachable(ApiError):
    """No answer: refused, reset, timed out or not trusted. Whether a write was done is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


class Undecodable(ApiError):
    """The answer is not what the kind should look like; the message carries the path of the field."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Undecodable", message)


_BY_REASON: dict[str, type[ApiError]] = {"AlreadyExists": AlreadyExists, "Expired": Gone, "Gone": Gone}
_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def error_from(status: int, body: bytes) -> ApiError:
    """The exception for an answer of 400 or more, or for the object of an ERROR watch event."""
    parsed = _parse(body)
    code = status or parsed.code
    cls = _BY_REASON.get(parsed.reason) or _BY_STATUS.get(code, ApiError)
    return cls(code, parsed.reason, parsed.message or f"the API server answered {code}", parsed.details)


def _parse(body: bytes) -> Status:
    try:
        return decode(body, Status)
    except msgspec.MsgspecError:
        # A proxy or an aggregated server may answer in plain text; its first line is still the best we have.
        text = body[:500].decode(errors="replace").strip()
        return Status(message=text.splitlines()[0] if text else "")
