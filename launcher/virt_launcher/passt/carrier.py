"""The passt of this machine: started before QEMU, which finds its socket. It ends when QEMU hangs up."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from virt_core.apis.bindings import PASST, binding_of
from virt_core.apis.interfaces import Interface
from virt_core.apis.podnetworks import PRIMARY
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.logs import get_logger
from virt_launcher.convert.interfaces import PASST_SOCKET
from virt_launcher.errors import InvalidVMIError
from virt_launcher.process.children import Children

log = get_logger(__name__)

#: passt has a socket for each port and protocol that it takes, but for those that the kernel hands out itself.
FILES_FOR_ALL_PORTS = 80_000
#: From its start until it listens; it opens its sockets in that time.
START_S = 20.0
_END_S = 5.0
_BECOME = (sys.executable, "-I", "-m", "virt_launcher.passt.become")


def wanted(vmi: VirtualMachineInstance) -> tuple[str, Interface] | None:
    """Path and NIC of the one that is carried by passt: on the Pod network there is one at most."""
    for index, nic in enumerate(vmi.spec.domain.devices.interfaces):
        if binding_of(nic) == PASST:
            return f"spec.domain.devices.interfaces[{index}]", nic
    return None


def arguments(nic: Interface, directory: Path, hostname: str) -> list[str]:
    """It goes when QEMU goes, and gives the guest the addresses of the Pod's own interface."""
    found = ["--one-off", "--socket", str(directory / PASST_SOCKET), "--pid", str(directory / "passt.pid")]
    found += ["--interface", PRIMARY, "--hostname", hostname]
    for protocol in ("tcp", "udp"):
        ports = sorted({port.port for port in nic.ports if (port.protocol or "TCP").lower() == protocol})
        listed = ",".join(str(port) for port in ports) if nic.ports else "all"
        found += [f"--{protocol}-ports", listed or "none"]
    return found


class Carrier:
    def __init__(self, directory: Path, children: Children) -> None:
        self._directory, self._children = directory, children
        self._pid = 0

    def begin(self, path: str, nic: Interface, hostname: str) -> None:
        """Before QEMU starts; once more if that failed. Raises InvalidVMIError, with passt's own words."""
        self._end()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if not nic.ports and limit < FILES_FOR_ALL_PORTS:
            words = f"to take all ports passt opens up to {FILES_FOR_ALL_PORTS} files, and here it may open {limit}"
            raise InvalidVMIError(f"{path}.ports", f"{words}; list the ports that the guest serves")
        self._directory.mkdir(parents=True, exist_ok=True)
        said = self._directory / "passt.log"
        said.unlink(missing_ok=True)
        env = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONDONTWRITEBYTECODE": "1"}
        child = self._children.spawn([*_BECOME, *arguments(nic, self._directory, hostname)], env=env, output=str(said))
        ended = child.wait(START_S)
        if ended is None:
            child.kill()
            raise InvalidVMIError(f"{path}.passtBinding", f"passt did not listen within {START_S:.0f} s")
        if not ended.clean:
            lines = said.read_text(errors="replace").strip().splitlines()
            raise InvalidVMIError(f"{path}.passtBinding", lines[-1] if lines else ended.describe("passt"))
        self._pid = int((self._directory / "passt.pid").read_text())
        log.info("passt carries the guest's traffic", pid=self._pid)

    def _end(self) -> None:
        """What an earlier try left: its socket waits for a QEMU that never came."""
        if self._pid and self._children.status_of(self._pid, 0) is None:
            try:
                os.kill(self._pid, signal.SIGTERM)
                self._children.status_of(self._pid, _END_S)
            except ProcessLookupError:
                pass  # It ended just now.
        self._pid = 0
