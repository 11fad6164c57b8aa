"""What a request is about: the path and the query in the words of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from virt_local.apiserver import errors

#: Of a 64 bit number.
_MAX_DIGITS = 20
_METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}


@dataclass(frozen=True, slots=True)
class Target:
    """`resource` is empty for paths that are not about objects (/version, /apis, /metrics)."""

    path: str
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def right(self) -> str:
        """The subresource that one needs a right for: of a longer path (portforward/22/tcp) Kubernetes asks for the
        first part only."""
        return self.subresource.partition("/")[0]


def parse_target(method: str, path: str, query: Mapping[str, str]) -> Target:
    parts = [part for part in path.split("/") if part]
    group, version, rest = _group_version(parts)
    if not rest:
        return Target(path, method.lower())
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not _is_namespace_subresource(rest):
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    verb = _verb(method, name, query)
    return Target(path, verb, group, version, rest[0], namespace, name, subresource)


def _is_namespace_subresource(rest: list[str]) -> bool:
    return len(rest) == 3 and rest[2] in ("status", "finalize")


def _group_version(parts: list[str]) -> tuple[str, str, list[str]]:
    if len(parts) > 2 and parts[0] == "api":
        return "", parts[1], parts[2:]
    if len(parts) > 3 and parts[0] == "apis":
        return parts[1], parts[2], parts[3:]
    return "", "", []


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    verb = _METHODS.get(method)
    if verb is None:
        raise errors.ApiError(405, "MethodNotAllowed", f"the method {method} is not supported")
    if verb == "get" and is_true(query.get("watch")):
        return "watch"
    if verb == "get" and not name:
        return "list"
    return "deletecollection" if verb == "delete" and not name else verb


def is_true(text: str | None) -> bool:
    """A parameter that is there is true, unless it says otherwise."""
    return text is not None and text.lower() not in ("false", "0")


def integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def revision(query: Mapping[str, str]) -> int | None:
    """Raises a ValueError whose text says what is wrong, for callers that answer it differently."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS:
        why = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise ValueError(f'resourceVersion: Invalid value: "{text}": {why}')
    return int(text)


def dry_run(query: Mapping[str, str], options: Mapping[str, object] | None = None) -> bool:
    """Other values than `All` are refused before this is asked."""
    return bool(query.get("dryRun") or _listed((options or {}).get("dryRun")))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
