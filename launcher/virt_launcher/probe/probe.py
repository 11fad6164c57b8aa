"""`virt-launcher --node-probe DIR`: finds out once for a node what QEMU can do there.

libvirt starts QEMU several times to learn that, and every launcher would pay for it. So the node keeps libvirt's
own cache files and hands them to each launcher. They are valid for the same QEMU, libvirt, kernel and access to
KVM; a probe that finds all of these unchanged does nothing.
"""

from __future__ import annotations

import glob
import json
import os
import platform
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from virt_core.runtime.logs import get_logger
from virt_core.runtime.supervisor import Supervisor
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.daemon import Daemon
from virt_launcher.hypervisor.kvm import kvm_usable
from virt_launcher.process.children import Children
from virt_launcher.settings import Paths, Settings

log = get_logger(__name__)

_FILE = "probe.json"
_EMULATORS = "/usr/bin/qemu-system-*"
#: Goes up when the probe writes something that it did not write before.
_CONTENTS = 2


class Probe:
    def __init__(self, settings: Settings, supervisor: Supervisor, children: Children) -> None:
        self._supervisor = supervisor
        self._children = children
        self._target = settings.node_probe or Path()

    def run(self, stop: threading.Event) -> None:
        del stop
        try:
            self._probe()
        except (LauncherError, OSError) as error:
            log.error("the node could not be probed", error=str(error))
            self._supervisor.request_stop(1)
            return
        self._supervisor.request_stop(0)

    def _probe(self) -> None:
        self._target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="virt-probe-") as scratch:
            paths = Paths(private=Path(scratch) / "private", libvirt=Path(scratch) / "run")
            daemon = Daemon(paths, self._children)
            facts = fingerprint(daemon.binary)
            if self._still_valid(facts):
                log.info("the node's capabilities are known already", directory=str(self._target))
                return
            daemon.start()
            try:
                self._ask(daemon, paths, facts)
            finally:
                daemon.stop()

    def _still_valid(self, facts: dict[str, Any]) -> bool:
        try:
            known = json.loads((self._target / _FILE).read_bytes())
        except (FileNotFoundError, ValueError):
            return False
        return bool(known.get("fingerprint") == facts and any(self._target.glob("capabilities/*.xml")))

    def _ask(self, daemon: Daemon, paths: Paths, facts: dict[str, Any]) -> None:
        from virt_launcher.hypervisor.libvirt_host import ask_host

        kind = "kvm" if kvm_usable() else "qemu"
        answers = ask_host(daemon.uri, kind)
        files = {f"capabilities/{p.name}": p.read_bytes() for p in sorted(paths.capability_cache.glob("*.xml"))}
        files["host-capabilities.xml"] = answers.capabilities.encode()
        files["domcapabilities.xml"] = answers.domain_capabilities.encode()
        files["supported-features.xml"] = answers.features.encode()
        summary = {"qemu": answers.qemu, "libvirt": answers.libvirt, "kernel": platform.release()}
        files[_FILE] = json.dumps({**summary, "virtType": kind, "fingerprint": facts}, indent=1).encode()
        self._write(files)
        log.info("the node's capabilities are known now", directory=str(self._target), **summary)

    def _write(self, files: dict[str, bytes]) -> None:
        """The summary last: it is what makes the rest valid."""
        shutil.rmtree(self._target / "capabilities", ignore_errors=True)
        for name, content in files.items():
            path = self._target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.new")
            temporary.write_bytes(content)
            temporary.rename(path)


def fingerprint(daemon: str) -> dict[str, Any]:
    """Everything that makes libvirt's cache stale when it changes."""
    binaries = [daemon, *sorted(glob.glob(_EMULATORS))]
    return {
        "contents": _CONTENTS,
        "binaries": {path: int(os.stat(path).st_ctime) for path in binaries},
        "kernel": platform.version(),
        "kvm": kvm_usable(),
        "uid": os.getuid(),
    }
