"""Puts our profile of system calls where the kubelet looks for those of its node.

Launchers have it where the KubeVirt object says so (`seccompConfiguration`), and that of the runtime elsewhere.
"""

from __future__ import annotations

import json
import os

from virt_core.apis import names
from virt_core.kube.configvalues import ClusterConfig
from virt_core.runtime.files import SafeDir
from virt_core.runtime.logs import get_logger
from virt_core.runtime.seccomp import machine_profile

log = get_logger(__name__)

GATE = "KubevirtSeccompProfile"
DIRECTORY = "seccomp"


class SeccompProfile:
    def __init__(self, kubelet_root: str) -> None:
        self._root = kubelet_root

    def follow(self, config: ClusterConfig) -> None:
        """A Pod that names it may start at any time, so it is not taken away when the gate closes."""
        if not config.has(GATE):
            return
        try:
            self._write(json.dumps(machine_profile(), indent=1).encode())
        except OSError as error:
            log.warning("the profile of system calls could not be written", directory=self._root, error=str(error))

    def _write(self, text: bytes) -> None:
        """The directory is the node's: a link in it leads nowhere."""
        path = f"{DIRECTORY}/{names.SECCOMP_PROFILE}"
        with SafeDir.open_trusted(self._root) as root:
            for part in (DIRECTORY, os.path.dirname(path)):
                root.mkdir(part).close()
            if not root.exists(path) or root.read(path) != text:
                root.write_atomic(path, text, 0o644)
                log.info("wrote the profile of system calls", path=os.path.join(self._root, path))
