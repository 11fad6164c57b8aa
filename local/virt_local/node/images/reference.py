"""Image names as people write them, and their one full form."""

from __future__ import annotations

import re

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?::[0-9]+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

DEFAULT_REGISTRY = "docker.io"


class InvalidReference(ValueError):
    """The text names no image."""


def normalize(text: str) -> str:
    """`busybox` → `docker.io/library/busybox:latest`; a name with a host, a tag or a digest keeps them."""
    name, _, digest = text.partition("@")
    name, tag = _split_tag(name)
    if "/" not in name or not _is_host(name.split("/", 1)[0]):
        name = f"{DEFAULT_REGISTRY}/{name if '/' in name else 'library/' + name}"
    if not _NAME.fullmatch(name) or (tag and not _TAG.fullmatch(tag)) or (digest and not _DIGEST.fullmatch(digest)):
        raise InvalidReference(f"{text!r} is not an image reference such as registry.example/name:tag")
    if digest:
        return f"{name}@{digest}"
    return f"{name}:{tag or 'latest'}"


def _split_tag(name: str) -> tuple[str, str]:
    head, colon, tail = name.rpartition(":")
    if colon and "/" not in tail:
        return head, tail
    return name, ""


def _is_host(part: str) -> bool:
    return "." in part or ":" in part or part == "localhost"


def pull_policy(policy: str, reference: str) -> str:
    """The policy that holds: as Kubernetes, `latest` is always looked up anew unless the Pod says otherwise."""
    if policy:
        return policy
    return "Always" if normalize(reference).endswith(":latest") else "IfNotPresent"
