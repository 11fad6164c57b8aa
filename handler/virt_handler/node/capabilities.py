"""What the node's probe (`virt-launcher --node-probe DIR`) found out, read again when it changes."""

from __future__ import annotations

import functools
import os
import re
import threading
from pathlib import Path

from virt_core.runtime.logs import get_logger
from virt_protos.launcher.v1 import launcher_pb2 as pb

log = get_logger(__name__)

CACHE_DIR = "capabilities"
HOST_FILE = "host-capabilities.xml"
DOMAIN_FILE = "domcapabilities.xml"
#: The features of the host's CPU, each by its name.
FEATURES_FILE = "supported-features.xml"

_MAX_FILE = 4 << 20
_MAX_CACHE = 6 << 20
_VIRTUALISES = re.compile(r"^(?:flags\s*:.*\b(?:vmx|svm)\b|Features\s*:)", re.MULTILINE)


@functools.cache
def cpu_virtualises(cpuinfo: str = "/proc/cpuinfo") -> bool:
    """Whether the processor can run guests (on ARM, KVM implies it). It stays the same while we live."""
    try:
        return bool(_VIRTUALISES.search(Path(cpuinfo).read_text()))
    except OSError:
        return False


def kvm_usable(device: str = "/dev/kvm", cpuinfo: str = "/proc/cpuinfo") -> bool:
    """A device node that opens does not yet run guests: the processor must virtualise too."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return cpu_virtualises(cpuinfo)


class NodeCapabilities:
    def __init__(self, directory: str, kvm: bool | None = None, kvm_device: str = "/dev/kvm") -> None:
        self._directory = Path(directory)
        self._kvm, self._kvm_device = kvm, kvm_device
        self._lock = threading.Lock()
        self._stamp: tuple[object, ...] | None = None
        self._files: list[pb.CacheFile] = []

    @property
    def kvm(self) -> bool:
        """As it is now: the module may be loaded, or taken away, while we run."""
        return kvm_usable(self._kvm_device) if self._kvm is None else self._kvm

    def cache_files(self) -> list[pb.CacheFile]:
        """libvirt's capability cache; nothing when the node was not probed yet, which only costs time."""
        with self._lock:
            paths = sorted((self._directory / CACHE_DIR).glob("*.xml"))
            stamp = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in paths)
            if stamp != self._stamp:
                self._files, self._stamp = _read(paths), stamp
            return self._files

    def text(self, name: str) -> str:
        """A document of the probe, or nothing."""
        try:
            return (self._directory / name).read_text()[:_MAX_FILE]
        except FileNotFoundError:
            return ""


def _read(paths: list[Path]) -> list[pb.CacheFile]:
    files: list[pb.CacheFile] = []
    room = _MAX_CACHE
    for path in paths:
        content = path.read_bytes()
        if len(content) > room:
            log.warning(
                "the capability cache is larger than a message may be, so part of it is left out", file=path.name
            )
            continue
        room -= len(content)
        files.append(pb.CacheFile(name=path.name, content=content))
    return files
