"""The host image: the machine's own programs as an image, so that the launcher needs no build and no pull.

Its root is a small skeleton of our own making; from the host come only the places on an allow-list, each as a read-only
bind mount: /usr, a few files of /etc, and the Python environment that we run from. What is not on the list (/home,
/root, /srv, /var, /tmp, /run with its sockets, our own data, keys and passwords) is not hidden: it never was there.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from virt_local.node.images.layout import RunConfig
from virt_local.node.images.root import OciMount, Root, read_only_bind
from virt_local.node.layout import remove_tree, write_atomic

HOST_IMAGE = "virtpod.internal/host:latest"
QEMU_UID = 107

_USR_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_EMPTY = ("dev", "proc", "sys", "run", "usr", "etc", "var/lib", "var/cache", "var/log", "mnt")
_ETC = (
    "alternatives",
    "crypto-policies",
    "debian_version",
    "gai.conf",
    "host.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "libvirt/libvirt.conf",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki/tls/certs",
    "protocols",
    "python3*",
    "qemu",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "swtpm*",
    "timezone",
)
_PASSWD = f"""root:x:0:0:root:/:/usr/sbin/nologin
qemu:x:{QEMU_UID}:{QEMU_UID}:qemu:/:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/:/usr/sbin/nologin
"""
_GROUP = f"""root:x:0:
qemu:x:{QEMU_UID}:
nogroup:x:65534:
"""
#: A directory that holds one of these holds too much to be shown to a VM's process.
_PROTECTED = ("/home", "/root", "/srv", "/var", "/tmp", "/run", "/etc", "/boot", "/dev", "/proc", "/sys")


@dataclass(frozen=True)
class HostPlan:
    """What the skeleton contains and what is mounted into it."""

    directories: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    mounts: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((self, _PASSWD, _GROUP)).encode()).hexdigest()


def plan_host(host: Path, environment: Iterable[str]) -> HostPlan:
    """Reads which of the allowed places this machine has. `host` is `/` except in tests."""
    links, mounts = [], [(str(host / "usr"), "/usr")]
    for name in _USR_LINKS:
        place = host / name
        if place.is_symlink():
            links.append((name, os.readlink(place)))
        elif place.is_dir():
            mounts.append((str(place), f"/{name}"))
    for place in _etc_places(host):
        inside = str(place.relative_to(host))
        target = os.readlink(place) if place.is_symlink() else ""
        if "usr/" in target:
            links.append((inside, target))
        else:
            mounts.append((str(place), f"/{inside}"))
    environment = list(environment)
    mounts += [(path, path) for path in environment]
    links.append(("var/run", "/run"))
    if not any(_inside(path, ["/var/tmp"]) for path in environment):
        links.append(("var/tmp", "/tmp"))
    return HostPlan(_EMPTY, tuple(links), tuple(mounts))


def _etc_places(host: Path) -> list[Path]:
    return sorted(place for pattern in _ETC for place in (host / "etc").glob(pattern) if place.exists())


def python_places(paths: Sequence[str], protected: Sequence[Path]) -> list[str]:
    """The directories of a Python environment that /usr does not hold, without those that lie in one another."""
    chosen: list[str] = []
    for path in sorted({os.path.abspath(p) for p in paths if p}, key=lambda p: (len(p), p)):
        if _inside(path, ["/usr", *chosen]) or not os.path.isdir(path):
            continue
        if any(_inside(str(place), [path]) for place in (*protected, *_PROTECTED)):
            continue
        chosen.append(path)
    return chosen


def _inside(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def running_environment() -> list[str]:
    """Where the Python that runs us, and our own code, live."""
    executable = os.path.dirname(os.path.realpath(sys.executable))
    return [sys.prefix, sys.base_prefix, executable, *(path for path in sys.path if os.path.isabs(path))]


class HostImage:
    def __init__(self, directory: Path, protected: Sequence[Path] = ()) -> None:
        """`directory` keeps the skeletons; `protected` are places that must never be shown, such as our data."""
        self._directory = directory
        self._plan = plan_host(Path("/"), python_places(running_environment(), [directory, *protected]))

    def root(self) -> Root:
        return Root(
            image=HOST_IMAGE,
            image_id=f"{HOST_IMAGE.rpartition(':')[0]}@sha256:{self._plan.digest}",
            lower=self._skeleton(),
            config=RunConfig(env=[f"PATH={path_variable()}"]),
            mounts=tuple(self._mounts()),
        )

    def _mounts(self) -> Iterable[OciMount]:
        for source, destination in self._plan.mounts:
            yield read_only_bind(Path(source), destination)

    def _skeleton(self) -> Path:
        """Named by its content, so that a running container keeps the one it was started with."""
        target = self._directory / self._plan.digest
        if target.is_dir():
            return target
        partial = self._directory / f".{self._plan.digest}.{os.getpid()}"
        remove_tree(partial)
        build_skeleton(self._plan, partial)
        try:
            os.rename(partial, target)
        except OSError:
            if not target.is_dir():
                raise
            remove_tree(partial)
        return target


def build_skeleton(plan: HostPlan, target: Path) -> None:
    for name in ("", *plan.directories):
        (target / name).mkdir(parents=True, exist_ok=True)
    for name, link in plan.links:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).symlink_to(link)
    for source, destination in plan.mounts:
        _mount_point(Path(source), target / destination.lstrip("/"))
    write_atomic(target / "etc/passwd", _PASSWD.encode(), 0o644)
    write_atomic(target / "etc/group", _GROUP.encode(), 0o644)
    for name in ("hosts", "resolv.conf", "hostname"):
        (target / "etc" / name).touch()
    _open_to_all(target)
    (target / "tmp").mkdir()
    (target / "tmp").chmod(0o1777)


def _open_to_all(target: Path) -> None:
    """Every user of a container may look, whatever our umask says."""
    for directory, _, files in os.walk(target):
        Path(directory).chmod(0o755)
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o644)


def _mount_point(source: Path, point: Path) -> None:
    if source.is_dir():
        point.mkdir(parents=True, exist_ok=True)
    else:
        point.parent.mkdir(parents=True, exist_ok=True)
        point.touch()


def path_variable() -> str:
    return f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
