"""What a command is about: `vmi NAME`, `vmi/NAME`, or a bare NAME where only one kind makes sense."""

from __future__ import annotations

from dataclasses import dataclass

import click

VM, VMI = "vm", "vmi"

_ALIASES = {
    VM: ("vm", "vms", "virtualmachine", "virtualmachines"),
    VMI: ("vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances"),
}


@dataclass(frozen=True, slots=True)
class Target:
    kind: str
    name: str


def parse_target(words: tuple[str, ...], default_kind: str | None = None) -> Target:
    """Raises UsageError (exit code 2) for anything that is not a kind and a name."""
    parts = tuple(words[0].split("/", 1)) if len(words) == 1 and "/" in words[0] else words
    if len(parts) == 1 and default_kind:
        return Target(default_kind, parts[0])
    if len(parts) != 2 or not all(parts):
        raise click.UsageError("say what it is about, e.g. `vmi NAME`")
    for kind, aliases in _ALIASES.items():
        if parts[0].lower() in aliases:
            return Target(kind, parts[1])
    raise click.UsageError(f"{parts[0]!r} is not a kind that virtctl knows: use vm or vmi")


def subresource_path(namespace: str, name: str, subresource: str) -> str:
    from virt_core.apis.names import SUBRESOURCE_GROUP

    return f"/apis/{SUBRESOURCE_GROUP}/v1/namespaces/{namespace}/virtualmachineinstances/{name}/{subresource}"
