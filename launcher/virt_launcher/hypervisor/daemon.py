"""The launcher's own libvirt daemon: virtqemud where the distribution has it, else the monolithic libvirtd.

It runs as our own user and serves only us, so everything in it that is not the QEMU driver is left out: with fewer
drivers and worker threads its private memory went from 8 to 5.5 MiB.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import threading
import time
from pathlib import Path

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import StartUpError
from virt_launcher.process.children import Child, Children
from virt_launcher.settings import Paths

log = get_logger(__name__)

_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_QEMU_DRIVER = "libvirt_driver_qemu.so"
_DRIVER_DIRS = ("/usr/lib/*/libvirt/connection-driver", "/usr/lib64/libvirt/connection-driver")
_RESTART_DELAYS_S = (0.1, 5.0)
#: A daemon that lived so long was well; its next end is a new story.
_STABLE_S = 30.0

#: libvirt must not try what an unprivileged process cannot do: change owners, cgroups, namespaces, labels.
#: With stdio_handler=file no virtlogd is needed. Of the other side of a move libvirt knows only our sockets: whether it
#: is still there is for those to say who see the wire.
_QEMU_CONF = """\
stdio_handler = "file"
security_driver = "none"
cgroup_controllers = []
namespaces = []
remember_owner = 0
dynamic_ownership = 0
keepalive_interval = -1
"""

_DAEMON_CONF = """\
unix_sock_dir = "{sockets}"
auth_unix_rw = "none"
min_workers = 2
max_workers = 8
prio_workers = 2
max_clients = 32
admin_min_workers = 1
admin_max_workers = 1
log_outputs = "3:stderr"
"""

_LIBVIRTD_CONF = """\
listen_tls = 0
listen_tcp = 0
"""


class Daemon:
    """Starts the daemon and keeps it running. QEMU survives its daemon, and a new daemon finds it again."""

    def __init__(self, paths: Paths, children: Children) -> None:
        self._paths = paths
        self._children = children
        self._child: Child | None = None
        self._started_at = 0.0
        self.binary = _find_binary()
        self.log_file = paths.daemon_log

    @property
    def modular(self) -> bool:
        return self.binary.endswith("virtqemud")

    @property
    def socket(self) -> Path:
        return self._paths.libvirt / ("virtqemud-sock" if self.modular else "libvirt-sock")

    @property
    def uri(self) -> str:
        return f"qemu+unix:///session?socket={self.socket}"

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    def start(self) -> None:
        config = self._write_config()
        self.socket.unlink(missing_ok=True)
        self._started_at = time.monotonic()
        self._child = self._children.spawn(
            [self.binary, "-f", str(config)], env=self._environment(), output=str(self.log_file)
        )

    def keep_running(self, stop: threading.Event) -> None:
        """The body of the thread that restarts it."""
        delay = _RESTART_DELAYS_S[0]
        while not stop.is_set():
            child = self._child
            if child is None or child.wait(1.0) is None or stop.is_set():
                continue
            delay = _RESTART_DELAYS_S[0] if time.monotonic() - self._started_at > _STABLE_S else delay * 2
            log.warning("the libvirt daemon ended and is started again", cause=self.last_words())
            if not stop.wait(min(delay, _RESTART_DELAYS_S[1])):
                self.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        child = self._child
        if child is None:
            return
        child.kill(signal.SIGTERM)
        if child.wait(timeout_s) is None:
            child.kill()
            child.wait(timeout_s)

    def last_words(self) -> str:
        """Why it ended, for people: its status and the last line that it wrote."""
        ended = self._child.ended if self._child is not None else None
        how = ended.describe(Path(self.binary).name) if ended is not None else f"{Path(self.binary).name} still runs"
        lines = tail(self.log_file).splitlines()
        return f"{how}: {lines[-1]}" if lines else how

    def _write_config(self) -> Path:
        paths = self._paths
        for directory in (paths.libvirt, paths.cache_home, paths.data_home, paths.config_home / "libvirt"):
            directory.mkdir(parents=True, exist_ok=True)
        (paths.config_home / "libvirt/qemu.conf").write_text(_QEMU_CONF + self._huge_pages())
        config = paths.config_home / "libvirt" / f"{Path(self.binary).name}.conf"
        text = _DAEMON_CONF.format(sockets=paths.libvirt)
        config.write_text(text if self.modular else text + _LIBVIRTD_CONF)
        return config

    def _huge_pages(self) -> str:
        """As an ordinary user's libvirt does not look for the mount by itself."""
        mount = self._paths.huge_pages
        return f'hugetlbfs_mount = "{mount}"\n' if mount.is_mount() else ""

    def _environment(self) -> dict[str, str]:
        paths = self._paths
        env = {
            "PATH": _SEARCH_PATH,
            "HOME": str(paths.private),
            "XDG_RUNTIME_DIR": str(paths.libvirt),
            "XDG_CACHE_HOME": str(paths.cache_home),
            "XDG_CONFIG_HOME": str(paths.config_home),
            "XDG_DATA_HOME": str(paths.data_home),
            "MALLOC_ARENA_MAX": "2",
        }
        drivers = None if self.modular else self._only_qemu_driver()
        return env if drivers is None else {**env, "LIBVIRT_DRIVER_DIR": str(drivers)}

    def _only_qemu_driver(self) -> Path | None:
        """A directory in which libvirtd finds nothing but the QEMU driver."""
        found = next((p for d in _DRIVER_DIRS for p in glob.glob(f"{d}/{_QEMU_DRIVER}")), None)
        if found is None:
            return None
        directory = self._paths.config_home / "libvirt/drivers"
        directory.mkdir(parents=True, exist_ok=True)
        link = directory / _QEMU_DRIVER
        if not link.is_symlink():
            link.symlink_to(found)
        return directory


def tail(path: Path, limit: int = 4096) -> str:
    """The last bytes of a log file; empty when there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - limit, 0))
            return file.read(limit).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _find_binary() -> str:
    for name in ("virtqemud", "libvirtd"):
        if found := shutil.which(name, path=_SEARCH_PATH):
            return found
    raise StartUpError("the launcher's image has neither virtqemud nor libvirtd")
