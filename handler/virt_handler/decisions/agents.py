"""Whether the guest's agent can do what is asked of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from virt_core.apis.vmi import VirtualMachineInstance
from virt_protos.launcher.v1 import launcher_pb2 as pb

_BASIC = frozenset(
    {
        "guest-ping",
        "guest-get-time",
        "guest-info",
        "guest-shutdown",
        "guest-network-get-interfaces",
        "guest-get-fsinfo",
        "guest-get-host-name",
        "guest-get-users",
        "guest-get-timezone",
        "guest-get-osinfo",
    }
)
_KEYS = frozenset(
    {"guest-ssh-get-authorized-keys", "guest-ssh-add-authorized-keys", "guest-ssh-remove-authorized-keys"}
)
#: How keys are written by an agent that does not know them.
_FILES = frozenset(
    {
        "guest-exec",
        "guest-exec-status",
        "guest-file-open",
        "guest-file-close",
        "guest-file-read",
        "guest-file-write",
    }
)
_PASSWORD = frozenset({"guest-set-user-password"})


def unsupported(vmi: VirtualMachineInstance, domain: pb.Domain, versions: Iterable[str]) -> str:
    """What the agent lacks, as a sentence; empty when it lacks nothing. `versions` are patterns of good ones."""
    commands = frozenset(domain.agent_commands)
    if not commands:
        return _by_version(domain.agent_version, versions)
    if missing := _BASIC - commands:
        return f"the guest agent does not know {', '.join(sorted(missing))}"
    if _wants_keys(vmi) and not (commands >= _KEYS or commands >= _FILES):
        return "the guest agent cannot set SSH keys"
    if _wants_password(vmi) and not commands >= _PASSWORD:
        return "the guest agent cannot set passwords"
    return ""


def _by_version(version: str, versions: Iterable[str]) -> str:
    """An agent that does not say what it can do is judged by its version, as the cluster says."""
    if not version or any(_matches(pattern, version) for pattern in versions):
        return ""
    return f"version {version} of the guest agent is not supported"


def _matches(pattern: str, version: str) -> bool:
    try:
        return re.search(pattern, version) is not None
    except re.error:
        return False


def _wants_keys(vmi: VirtualMachineInstance) -> bool:
    keys = (credential.ssh_public_key for credential in vmi.spec.access_credentials)
    return any(key is not None and key.propagation_method.qemu_guest_agent is not None for key in keys)


def _wants_password(vmi: VirtualMachineInstance) -> bool:
    return any(credential.user_password is not None for credential in vmi.spec.access_credentials)
