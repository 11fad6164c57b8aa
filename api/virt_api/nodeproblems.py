"""What a node says that went wrong, in the vocabulary of HTTP."""

from __future__ import annotations

from grpc import StatusCode

from virt_api.problems import Problem

_OF_GRPC = {
    # The VMI exists, the API server said so: its node has not heard of it yet, or not again after a restart.
    StatusCode.NOT_FOUND: 503,
    StatusCode.FAILED_PRECONDITION: 409,
    StatusCode.ABORTED: 409,
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.RESOURCE_EXHAUSTED: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}


def from_node(code: StatusCode, message: str, node: str) -> Problem:
    """What the node said, or that it said nothing."""
    http = _OF_GRPC.get(code, 500)
    if code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
        return Problem(http, f"virt-handler on node {node} does not answer: {message}")
    return Problem(http, message or f"virt-handler on node {node} failed: {code.name}")
