"""The resources and subresources of a group and version, in one form that both kinds of discovery are made from."""

from __future__ import annotations

from dataclasses import dataclass

from virt_local.apiserver.kinds import Kind


@dataclass(frozen=True, slots=True)
class Sub:
    """A subresource: its name, and the kind that its bodies are of (empty: the resource's own)."""

    name: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    kind: str = ""


_SUBS = {
    sub.name: sub
    for sub in (
        Sub("status", ("get", "patch", "update")),
        Sub("scale", ("get", "patch", "update"), "autoscaling", "v1", "Scale"),
        Sub("finalize", ("update",)),
        Sub("binding", ("create",), "", "v1", "Binding"),
        Sub("eviction", ("create",), "policy", "v1", "Eviction"),
        Sub("token", ("create",), "authentication.k8s.io", "v1", "TokenRequest"),
        Sub("resize", ("get", "patch", "update")),
        Sub("log", ("get",)),
        Sub("exec", ("create", "get"), "", "v1", "PodExecOptions"),
        Sub("attach", ("create", "get"), "", "v1", "PodAttachOptions"),
        Sub("portforward", ("create", "get"), "", "v1", "PodPortForwardOptions"),
    )
}


def subresources(kind: Kind) -> list[Sub]:
    return [_SUBS[name] for name in (kind.subresources if kind.custom else sorted(kind.subresources))]
