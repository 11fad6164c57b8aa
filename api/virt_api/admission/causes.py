"""Why an object is refused: a field, a kind of mistake, and a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
NOT_SUPPORTED = "FieldValueNotSupported"
NOT_FOUND = "FieldValueNotFound"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"


class Cause(NamedTuple):
    field: str
    type: str
    message: str

    @property
    def sentence(self) -> str:
        """With the field in front, unless the message itself begins with it or with what it is a part of."""
        begins = self.message.partition(" ")[0]
        return self.message if begins and f"{self.field}.".startswith(f"{begins}.") else f"{self.field}: {self.message}"


class Refused(Exception):
    """The object breaks a rule; every cause that was found."""

    def __init__(self, causes: Iterable[Cause]) -> None:
        self.causes = list(dict.fromkeys(causes))
        super().__init__(self.causes)

    def __str__(self) -> str:
        return ", ".join(cause.sentence for cause in self.causes)


def invalid(field: str, message: str) -> Cause:
    return Cause(field, INVALID, message)


def required(field: str, message: str) -> Cause:
    return Cause(field, REQUIRED, message)


def not_supported(field: str, message: str) -> Cause:
    return Cause(field, NOT_SUPPORTED, message)


def not_found(field: str, message: str) -> Cause:
    return Cause(field, NOT_FOUND, message)


def duplicate(field: str, message: str) -> Cause:
    return Cause(field, DUPLICATE, message)


def forbidden(field: str, message: str) -> Cause:
    return Cause(field, FORBIDDEN, message)


def one_of(value: str, allowed: tuple[str, ...]) -> str:
    """The sentence for a value that is not in its list."""
    return f"{value!r} is not one of {', '.join(repr(name) for name in allowed)}"


class Denied(Exception):
    """The request is refused as a whole: a status code and a sentence, no field."""

    def __init__(self, message: str, code: int = 400, reason: str = "BadRequest") -> None:
        self.message, self.code, self.reason = message, code, reason
        super().__init__(message)
