"""API servers that one test can run on: the fake one of the unit tests, and virt-local's as a process of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Protocol

from framework.waiting import eventually

from virt_core.kube.client import KubeClient
from virt_core.kube.connect import Connection

_START = """
import sys
from pathlib import Path
from virt_local.apiserver.process import Options, run
run(Options(data_dir=Path(sys.argv[1]), listen=["127.0.0.1:" + sys.argv[2]], insecure=True))
"""


class Server(Protocol):
    def client(self) -> KubeClient: ...

    def down(self) -> None: ...

    def up(self) -> None: ...


class VirtLocal:
    """virt-local's API server as a process of its own; `down` is a kill -9."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._url = f"http://127.0.0.1:{self._port}"
        self.up()

    def client(self) -> KubeClient:
        return KubeClient(Connection(self._url), "test")

    def up(self) -> None:
        command = [sys.executable, "-c", _START, str(self._directory / "data"), str(self._port)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log)
        eventually(self._ready, within_s=20, every_s=0.02)

    def _ready(self) -> bool:
        assert self._process.poll() is None
        try:
            with urllib.request.urlopen(f"{self._url}/readyz", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def down(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
