"""JSON patch (RFC 6902), with the answers of an API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from virt_core.apis.jsonpatch import PatchError, PatchShapeError, apply_patch
from virt_local.apiserver import errors


@dataclass
class Rejected(errors.ApiError):
    why: str = ""


def apply_json_patch(document: Any, operations: Any) -> Any:
    """A patched copy. An operation that cannot be done, or a test that fails, is a 422."""
    try:
        return apply_patch(document, operations)
    except PatchShapeError as error:
        raise errors.bad_request(str(error)) from error
    except PatchError as error:
        # Clients are told no more than that; why is for the log and for whoever reads the code's tests.
        text = "the server rejected our request due to an error in our request"
        raise Rejected(422, "Invalid", text, bare=True, why=str(error)) from error
