"""Renders config.json, the file from which runc makes a container. It looks only at who the image's users are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from virt_core.apis.podparts import ResourceRequirements
from virt_core.apis.quantity import parse_bytes, parse_milli
from virt_local.node.oci.context import BundleContext, Device
from virt_local.node.oci.env import command_line
from virt_local.node.oci.security import (
    MASKED_PATHS,
    READONLY_PATHS,
    context_of,
    is_privileged,
    process_security,
)

if TYPE_CHECKING:
    from virt_local.node.images.root import OciMount

SPEC_VERSION = "1.0.2"
CPU_PERIOD_US = 100_000
_MIN_SHARES, _MAX_SHARES = 2, 262_144
_MIN_QUOTA_US = 1_000
_DEVICE_MODE = 0o666
_PROPAGATION = {"HostToContainer": "rslave", "Bidirectional": "rshared"}


def render(context: BundleContext) -> dict[str, Any]:
    container = context.container
    spec: dict[str, Any] = {
        "ociVersion": SPEC_VERSION,
        "process": _process(context),
        "root": {
            "path": str(context.root_path),
            "readonly": bool(context_of(container).read_only_root_filesystem),
        },
        "mounts": _mounts(context),
        "linux": _linux(context),
    }
    if not context.pod.spec.host_network:
        spec["hostname"] = context.hostname
    return spec


def _process(context: BundleContext) -> dict[str, Any]:
    config = context.root.config
    return {
        "terminal": context.container.tty,
        "args": command_line(context.container, config, context.env),
        "env": [f"{name}={value}" for name, value in context.env.items()],
        "cwd": context.container.working_dir or config.working_dir or "/",
        **process_security(context),
    }


def _linux(context: BundleContext) -> dict[str, Any]:
    privileged = is_privileged(context.container)
    linux: dict[str, Any] = {
        "cgroupsPath": context.cgroup,
        "namespaces": _namespaces(context),
        "resources": _resources(context),
        # In a user namespace nobody makes device nodes; there they come as mounts.
        "devices": [] if context.users else [_device_node(device) for device in context.devices],
        "maskedPaths": [] if privileged else list(MASKED_PATHS),
        "readonlyPaths": [] if privileged else list(READONLY_PATHS),
    }
    if context.users is not None:
        linux |= {"uidMappings": context.users.mappings, "gidMappings": context.users.mappings}
    if context.seccomp is not None:
        linux["seccomp"] = context.seccomp
    if sysctls := _sysctls(context):
        linux["sysctl"] = sysctls
    if propagation := _root_propagation(context.mounts):
        linux["rootfsPropagation"] = propagation
    return linux


def _sysctls(context: BundleContext) -> dict[str, str]:
    """A Pod on the node's network may not change it for everybody."""
    wish = context.pod.spec.security_context
    if wish is None:
        return {}
    values = {sysctl.name: sysctl.value for sysctl in wish.sysctls}
    if context.netns is None:
        return {name: value for name, value in values.items() if not name.startswith("net.")}
    return values


def _namespaces(context: BundleContext) -> list[dict[str, str]]:
    spec = context.pod.spec
    kinds = [{"type": "mount"}]
    kinds += [] if spec.host_pid else [{"type": "pid"}]
    kinds += [] if spec.host_ipc else [{"type": "ipc"}]
    if context.netns is not None:
        kinds += [{"type": "uts"}, {"type": "network", "path": str(context.netns)}]
    elif not spec.host_network:
        kinds += [{"type": "uts"}, {"type": "network"}]
    if context.users is not None:
        kinds.append({"type": "user", "path": str(context.users.path)})
    if context.unified_cgroups:
        kinds.append({"type": "cgroup"})
    return kinds


def _resources(context: BundleContext) -> dict[str, Any]:
    rules: list[dict[str, Any]] = [{"allow": is_privileged(context.container), "access": "rwm"}]
    rules += [
        {"allow": True, "type": device.kind, "major": device.major, "minor": device.minor, "access": "rwm"}
        for device in context.devices
    ]
    return {"devices": rules} | limits_of(context.container.resources)


def limits_of(wish: ResourceRequirements | None) -> dict[str, Any]:
    """CPU and memory, as they can be changed later, too."""
    requests, limits = (wish.requests, wish.limits) if wish else ({}, {})
    resources: dict[str, Any] = {"cpu": _cpu(requests.get("cpu", limits.get("cpu")), limits.get("cpu"))}
    if "memory" in limits:
        resources["memory"] = {"limit": parse_bytes(limits["memory"])}
    return resources


def _cpu(request: str | int | float | None, limit: str | int | float | None) -> dict[str, int]:
    milli = parse_milli(request) if request is not None else 0
    cpu = {"shares": min(max(milli * 1024 // 1000, _MIN_SHARES), _MAX_SHARES)}
    if limit is not None:
        cpu["quota"] = max(parse_milli(limit) * CPU_PERIOD_US // 1000, _MIN_QUOTA_US)
        cpu["period"] = CPU_PERIOD_US
    return cpu


def _device_node(device: Device) -> dict[str, Any]:
    return {
        "path": device.path,
        "type": device.kind,
        "major": device.major,
        "minor": device.minor,
        "fileMode": _DEVICE_MODE,
        "uid": 0,
        "gid": 0,
    }


def _root_propagation(mounts: list[OciMount]) -> str:
    options = {option for mount in mounts for option in mount.get("options", [])}
    return "rshared" if "rshared" in options else "rslave" if "rslave" in options else ""


def propagation_option(name: str | None) -> str:
    return _PROPAGATION.get(name or "", "rprivate")


def _mounts(context: BundleContext) -> list[OciMount]:
    """Parents before children, so that a volume inside a volume is not covered by it."""
    own = [*_kernel_mounts(context), *context.root.mounts]
    taken = {mount["destination"].rstrip("/") for mount in context.mounts}
    own = [mount for mount in own if mount["destination"].rstrip("/") not in taken]
    depth = {"/": 0}
    return sorted(
        [*own, *context.mounts],
        key=lambda mount: depth.get(mount["destination"], mount["destination"].rstrip("/").count("/")),
    )


def _kernel_mounts(context: BundleContext) -> list[OciMount]:
    quiet = ["nosuid", "noexec", "nodev"]
    sys_options = [*quiet, "rw" if is_privileged(context.container) else "ro"]
    mounts: list[OciMount] = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": quiet},
        _sys_mount(context, sys_options),
    ]
    if context.unified_cgroups:
        mounts.append(
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": [*quiet, "ro"]}
        )
    if is_privileged(context.container):
        return [*mounts, {"destination": "/dev", "type": "bind", "source": "/dev", "options": ["rbind", "rslave"]}]
    return [*mounts, *_device_mounts(quiet)]


def _sys_mount(context: BundleContext, options: list[str]) -> OciMount:
    """sysfs belongs to a network namespace: on the host's network the host's is bound instead of a new one."""
    if context.pod.spec.host_network:
        return {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", *options]}
    return {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": options}


def _device_mounts(quiet: list[str]) -> list[OciMount]:
    return [
        {
            "destination": "/dev",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
        },
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
        },
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*quiet, "mode=1777", "size=65536k"]},
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": quiet},
    ]
