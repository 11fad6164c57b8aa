"""The failures a client can see, and their body: a metav1.Status with reason, details and code.

One exception carries all of them, so that the HTTP layer has one place where a failure becomes a response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong, and the path of the field that is."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def to_plain(self) -> dict[str, str]:
        plain = {"reason": self.reason, "message": self.message, "field": self.field}
        return {key: value for key, value in plain.items() if value}


@dataclass
class ApiError(Exception):
    """A refused request. `resource` is `plural` or `plural.group`, as kubectl's users know it."""

    code: int
    reason: str
    message: str
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: Sequence[Cause] = ()
    retry_after_s: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False  # says "details" also when there are none
    token: str = ""  # where a list whose state is forgotten may go on

    def __str__(self) -> str:
        return self.message

    def to_status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.token} if self.token else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self._details(),
            "code": self.code,
        }
        for name in ("reason", "details"):
            if not status[name] and not (name == "details" and self.bare):
                del status[name]
        return status

    def body(self) -> bytes:
        return msgspec.json.encode(self.to_status())

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = {
            "name": self.name,
            "group": self.group,
            "kind": self.kind,
            "uid": self.uid,
            "causes": [cause.to_plain() for cause in self.causes],
            "retryAfterSeconds": self.retry_after_s,
        }
        return {key: value for key, value in details.items() if value}


def qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def not_found(resource: str, group: str, name: str) -> ApiError:
    text = f'{qualified(resource, group)} "{name}" not found'
    return ApiError(404, "NotFound", text, name=name, group=group, kind=resource)


def path_not_found() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", bare=True)


def already_exists(resource: str, group: str, name: str) -> ApiError:
    text = f'{qualified(resource, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, name=name, group=group, kind=resource)


def conflict(resource: str, group: str, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    text = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return ApiError(409, "Conflict", text, name=name, group=group, kind=resource, causes=causes)


def modified(resource: str, group: str, name: str) -> ApiError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, group, name, why)


def apply_conflict(causes: Sequence[Cause]) -> ApiError:
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
        return ApiError(409, "Conflict", text, causes=causes)
    lines: list[str] = []
    for whose in sorted({cause.message for cause in causes}):
        lines.append(whose.replace("conflict with", "conflicts with", 1) + ":")
        lines += [f"- {cause.field}" for cause in causes if cause.message == whose]
    text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", text, causes=causes)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    # The same complaint may come from several checks: the message says it once, the causes each time.
    listed = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, name=name, group=group, kind=kind, causes=causes)


def storage(message: str) -> ApiError:
    """What the real store says without a reason; clients see a 500."""
    return ApiError(500, "", message)


def bad_patch(document: Any, why: str) -> ApiError:
    """The patch could be applied, but what came out cannot be read."""
    shown = msgspec.json.encode(msgspec.json.encode(document).decode()).decode()
    return invalid("", "", "", [Cause("patch", f"Invalid value: {shown}: {why}")])


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def forbidden(resource: str, group: str, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    text = f'{qualified(resource, group)} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", text, name=name, group=group, kind=resource, causes=causes)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def gone(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def method_not_allowed() -> ApiError:
    text = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", text, bare=True)


def subresource_not_allowed(resource: str, group: str, verb: str) -> ApiError:
    text = f'{verb} is not supported on resources of kind "{qualified(resource, group)}"'
    return ApiError(405, "MethodNotAllowed", text, group=group, kind=resource)


class Unreachable(Exception):
    """Nobody stands behind a registered path: said in plain text, as by a proxy."""


class PageNotFound(Exception):
    """Nobody answers under this path, not even with a Status."""


def not_acceptable(*, bare: bool) -> ApiError:
    text = "only the following media types are accepted: application/json, application/yaml"
    return ApiError(406, "NotAcceptable", text, bare=bare)


def unsupported_media_type(content_type: str, known: Sequence[str]) -> ApiError:
    text = f"the body of the request was in an unknown format ({content_type!r}); known are: {', '.join(known)}"
    return ApiError(415, "UnsupportedMediaType", text)


def too_many_requests(message: str, retry_after_s: int, causes: Sequence[Cause] = ()) -> ApiError:
    return ApiError(429, "TooManyRequests", message, retry_after_s=retry_after_s, causes=causes)


def too_large(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")


def unavailable(message: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message)
