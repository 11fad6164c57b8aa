"""What a command is about: `vmi NAME`, `vmi/NAME[/NAMESPACE]`, or a bare NAME where only one kind makes sense."""

from __future__ import annotations

from dataclasses import dataclass

import click

VM, VMI, VMIRS, VMIM = "vm", "vmi", "vmirs", "vmim"
VMSNAPSHOT, VMRESTORE, VMCLONE, VMEXPORT = "vmsnapshot", "vmrestore", "vmclone", "vmexport"
VMBACKUP = "vmbackup"
PLURALS = {
    VM: "virtualmachines",
    VMI: "virtualmachineinstances",
    VMIRS: "virtualmachineinstancereplicasets",
    VMIM: "virtualmachineinstancemigrations",
    VMCLONE: "virtualmachineclones",
}

_ALIASES = {
    VM: ("vm", "vms", "virtualmachine", "virtualmachines"),
    VMI: ("vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances"),
    VMIM: ("vmim", "vmims", "virtualmachineinstancemigration", "virtualmachineinstancemigrations"),
    VMSNAPSHOT: ("vmsnapshot", "vmsnapshots", "virtualmachinesnapshot", "virtualmachinesnapshots"),
    VMRESTORE: ("vmrestore", "vmrestores", "virtualmachinerestore", "virtualmachinerestores"),
    VMIRS: ("vmirs", "vmirss", "virtualmachineinstancereplicaset", "virtualmachineinstancereplicasets"),
    VMCLONE: ("vmclone", "vmclones", "virtualmachineclone", "virtualmachineclones"),
    VMEXPORT: ("vmexport", "vmexports", "virtualmachineexport", "virtualmachineexports"),
    VMBACKUP: ("vmbackup", "vmbackups", "virtualmachinebackup", "virtualmachinebackups"),
}


@dataclass(frozen=True, slots=True)
class Target:
    kind: str
    name: str
    namespace: str = ""


def parse_target(words: tuple[str, ...], default_kind: str | None = None, kinds: tuple[str, ...] = (VM, VMI)) -> Target:
    """Raises UsageError for anything that is not a kind and a name."""
    parts = tuple(words[0].split("/", 1)) if len(words) == 1 and "/" in words[0] else words
    if len(parts) == 1 and default_kind:
        return Target(default_kind, parts[0])
    if len(parts) != 2 or not all(parts):
        raise click.UsageError("name the object, e.g. `vmi NAME`")
    return Target(_kind(parts[0], kinds), parts[1])


def parse_path(text: str) -> Target:
    """`type/name[/namespace]`, as port-forward, ssh and scp take it."""
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise click.UsageError(f"{text!r} is not a target: write type/name or type/name/namespace, e.g. vmi/NAME")
    return Target(_kind(parts[0], (VM, VMI)), parts[1], parts[2] if len(parts) == 3 else "")


def _kind(word: str, kinds: tuple[str, ...]) -> str:
    for kind in kinds:
        if word.lower() in _ALIASES[kind]:
            return kind
    raise click.UsageError(f"{word!r} is not a kind that this command knows: use {' or '.join(kinds)}")


def subresource_path(namespace: str, name: str, subresource: str, kind: str = VMI) -> str:
    from virt_core.apis.names import SUBRESOURCE_GROUP

    return f"/apis/{SUBRESOURCE_GROUP}/v1/namespaces/{part(namespace)}/{PLURALS[kind]}/{part(name)}/{subresource}"


def part(name: str) -> str:
    """A name as a part of a path: one that no object can have must not lead elsewhere."""
    from virt_core.apis.registry import UnusableName, segment

    try:
        return segment(name)
    except UnusableName as error:
        raise click.UsageError(str(error)) from error
