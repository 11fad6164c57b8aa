"""The body of an answer as data, whatever it is encoded in."""

from __future__ import annotations

import json
from typing import Any

import urllib3
import yaml

from virt_local.apiserver.schema import protobuf


def decoded(answer: urllib3.BaseHTTPResponse) -> Any:
    kind = answer.headers.get("Content-Type", "")
    if not answer.data:
        return None
    if kind.startswith("application/json") or answer.data[:1] == b"{":
        return json.loads(answer.data)
    if kind.startswith("application/yaml"):
        return yaml.safe_load(answer.data)
    if kind == protobuf.MEDIA_TYPE:
        return _message(answer.data)
    return answer.data.decode(errors="replace")


def _message(data: bytes) -> Any:
    """What a protobuf answer says, read by virt-local's own reader, which both servers' clients are served by."""
    if b"Status" in data[:20]:
        return "a Status in protobuf"
    return _without_zeros(protobuf.decode(data))


def _without_zeros(value: Any) -> Any:
    """A writer may put down scalars that are not set, as zero; a reader cannot tell."""
    if isinstance(value, dict):
        return {key: _without_zeros(item) for key, item in value.items() if item is not False and item != 0}
    return [_without_zeros(item) for item in value] if isinstance(value, list) else value
