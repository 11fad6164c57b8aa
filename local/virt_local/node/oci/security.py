"""How a container is confined: user, capabilities, seccomp, hidden paths."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

from virt_core.apis.pods import Container, Pod, SeccompProfile, SecurityContext
from virt_core.runtime.files import read_beneath
from virt_core.runtime.seccomp import default_profile
from virt_local.node.kernel import open_in_root
from virt_local.node.oci.context import BundleContext, ContainerConfigError, User


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: What a container may do unless its Pod says otherwise.
DEFAULT_CAPABILITIES = _words(
    """
    CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL
    AUDIT_WRITE
    """
)
#: In the order of their numbers.
ALL_CAPABILITIES = _words(
    """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
    NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
    SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP
    MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
    """
)
MASKED_PATHS = _words(
    """
    /proc/acpi /proc/asound /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats /proc/sched_debug /proc/scsi
    /proc/timer_list /proc/timer_stats /sys/devices/virtual/powercap /sys/firmware
    """
)
READONLY_PATHS = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
_MAX_PASSWD = 1 << 20


def context_of(container: Container) -> SecurityContext:
    return container.security_context or SecurityContext()


def is_privileged(container: Container) -> bool:
    return bool(context_of(container).privileged)


@functools.cache
def bounding_capabilities() -> frozenset[str]:
    """What this process may hand on at all: runc fails on a capability that is not in our own bounding set."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            mask = int(line.split()[1], 16)
            return frozenset(name for bit, name in enumerate(ALL_CAPABILITIES) if mask >> bit & 1)
    return frozenset(ALL_CAPABILITIES)


def capabilities(container: Container, available: frozenset[str]) -> dict[str, list[str]]:
    names = set(ALL_CAPABILITIES if is_privileged(container) else DEFAULT_CAPABILITIES)
    wish = context_of(container).capabilities
    if wish is not None:
        added = {name.upper().removeprefix("CAP_") for name in wish.add}
        dropped = {name.upper().removeprefix("CAP_") for name in wish.drop}
        names = (set() if "ALL" in dropped else names - dropped) | added
        if "ALL" in added:
            names = set(ALL_CAPABILITIES) - (dropped - {"ALL"})
        if unknown := names - set(ALL_CAPABILITIES):
            raise ContainerConfigError(f"unknown capability {sorted(unknown)[0]!r}")
    held = [f"CAP_{name}" for name in ALL_CAPABILITIES if name in names & available]
    return {"bounding": held, "effective": held, "permitted": held}


def no_new_privileges(container: Container) -> bool:
    return context_of(container).allow_privilege_escalation is False and not is_privileged(container)


def choose_user(pod: Pod, container: Container, image_user: str, root: Path) -> User:
    """The container's own wish, the Pod's, then the image's. Names are looked up inside the image."""
    outer, own = pod.spec.security_context, context_of(container)
    uid = own.run_as_user if own.run_as_user is not None else (outer.run_as_user if outer else None)
    gid = own.run_as_group if own.run_as_group is not None else (outer.run_as_group if outer else None)
    if uid is None:
        uid, image_gid = lookup_user(image_user, root)
        gid = image_gid if gid is None else gid
    non_root = own.run_as_non_root if own.run_as_non_root is not None else (outer.run_as_non_root if outer else None)
    if non_root and uid == 0:
        raise ContainerConfigError(f"container {container.name!r} has runAsNonRoot and would run as root")
    groups = list(outer.supplemental_groups) if outer else []
    if outer and outer.fs_group is not None:
        groups.append(outer.fs_group)
    return User(uid, gid or 0, tuple(dict.fromkeys(groups)))


def lookup_user(text: str, root: Path) -> tuple[int, int]:
    """`user[:group]` of an image config, by number or by name."""
    if not text:
        return 0, 0
    user, _, group = text.partition(":")
    uid, gid = (int(user), 0) if user.isdigit() else _find(root, "etc/passwd", user)
    if group:
        gid = int(group) if group.isdigit() else _find(root, "etc/group", group)[0]
    elif user.isdigit():
        gid = 0
    return uid, gid


def _find(root: Path, name: str, wanted: str) -> tuple[int, int]:
    for line in _read_in_root(root, name).splitlines():
        fields = line.split(":")
        if fields[0] == wanted and len(fields) >= 3 and fields[2].isdigit():
            return int(fields[2]), int(fields[3]) if len(fields) > 3 and fields[3].isdigit() else 0
    raise ContainerConfigError(f"the image has no {wanted!r} in /{name}")


def _read_in_root(root: Path, name: str) -> str:
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.fdopen(open_in_root(root_fd, name, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            return stream.read(_MAX_PASSWD).decode(errors="replace")
    except OSError as err:
        raise ContainerConfigError(f"the image's /{name} cannot be read: {err.strerror}") from err
    finally:
        os.close(root_fd)


def seccomp_profile(pod: Pod, container: Container, local_profiles: Path) -> dict[str, Any] | None:
    outer = pod.spec.security_context
    profile = context_of(container).seccomp_profile or (outer.seccomp_profile if outer else None)
    if profile is None or profile.type == "Unconfined" or is_privileged(container):
        return None
    if profile.type == "RuntimeDefault":
        return default_profile()
    if profile.type == "Localhost":
        return _local_profile(profile, local_profiles)
    raise ContainerConfigError(
        f"the seccomp profile type {profile.type!r} is not RuntimeDefault, Localhost or Unconfined"
    )


def _local_profile(profile: SeccompProfile, directory: Path) -> dict[str, Any]:
    name = profile.localhost_profile or ""
    try:
        loaded: dict[str, Any] = json.loads(read_beneath(directory, name))
        return loaded
    except (OSError, ValueError) as err:
        raise ContainerConfigError(f"the seccomp profile {name!r} of this node cannot be read: {err}") from err


def process_security(context: BundleContext) -> dict[str, Any]:
    """The part of the bundle's process that says who runs and with which rights."""
    user = context.user
    return {
        "user": {"uid": user.uid, "gid": user.gid, "additionalGids": list(user.groups)},
        "capabilities": capabilities(context.container, bounding_capabilities()),
        "noNewPrivileges": no_new_privileges(context.container),
    }
