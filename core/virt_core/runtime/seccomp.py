"""Profiles of system calls, as a container runtime reads them."""

from __future__ import annotations

import functools
import json
import platform
from importlib import resources
from typing import Any

ALLOW, DENY = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
_ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
}
#: What runtimes keep from containers by default and a machine may need: its memory is fetched from the node that it has
#: left (post-copy), or comes from certain memory cells of the node.
FOR_MACHINES = ("userfaultfd", "get_mempolicy", "mbind", "set_mempolicy")


@functools.cache
def default_profile() -> dict[str, Any]:
    """What runtimes allow without a profile. Shared; whoever changes it takes a copy."""
    text = resources.files("virt_core.runtime").joinpath("seccomp.json").read_text()
    profile: dict[str, Any] = json.loads(text)
    return {**profile, "architectures": _ARCHITECTURES.get(platform.machine(), [])}


def machine_profile() -> dict[str, Any]:
    """The default with what machines may need."""
    default = default_profile()
    rules = [{**rule, "names": [n for n in rule["names"] if n not in FOR_MACHINES]} for rule in default["syscalls"]]
    allowed = {"names": list(FOR_MACHINES), "action": ALLOW}
    return {**default, "syscalls": [*(rule for rule in rules if rule["names"]), allowed]}
