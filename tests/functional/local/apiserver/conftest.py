"""An API server as its own process on a free port, and the real kubectl against it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_START = """
import sys
from pathlib import Path
from virt_local.apiserver.process import Options, run
run(Options(data_dir=Path(sys.argv[1]), listen=["127.0.0.1:" + sys.argv[2]], insecure=True))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class ApiServer:
    """`start`, `kill` and `start` again: the data stays."""

    directory: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-c", _START, str(self.directory / "data"), str(self.port)]
        self.process = subprocess.Popen(command, stderr=(self.directory / "log").open("ab"))
        deadline = time.monotonic() + 15
        while not self._is_ready():
            assert self.process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline, "the API server did not become ready"
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def kill(self, signum: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(signum)
        return self.process.wait(15)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Content-Type", headers.pop("content_type", "application/json"))
        for name, value in headers.items():
            request.add_header(name, value)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    api = ApiServer(tmp_path_factory.mktemp("apiserver"))
    api.start()
    yield api
    if api.process is not None and api.process.poll() is None:
        api.kill(signal.SIGTERM)


@dataclass
class Kubectl:
    config: Path
    environment: dict[str, str]

    def __call__(self, *arguments: str, stdin: str = "", ok: bool = True) -> str:
        """Runs kubectl; returns what it printed, on both streams."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment,
            check=False,
        )
        text = done.stdout + done.stderr
        assert (done.returncode == 0) is ok, f"kubectl {' '.join(arguments)}: {text}"
        return text

    def command(self, *arguments: str) -> list[str]:
        return ["kubectl", "--kubeconfig", str(self.config), *arguments]


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    config = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": server.url}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    document = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [{"name": "u", "user": {}}]}
    config.write_text(json.dumps(document | {"contexts": [context], "current-context": "x"}))
    return Kubectl(config, {**os.environ, "HOME": str(tmp_path)})
