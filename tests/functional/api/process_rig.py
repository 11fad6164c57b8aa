"""virt-api as a process of its own, before a fake API server."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from framework.certs import CertAuthority
from framework.fake_kube import FakeKube, fake_kube
from framework.flood import Caller
from framework.waiting import eventually
from functional.api.rotation_rig import answer, free_port

from virt_api.authn import API_SERVER
from virt_api.subresources.discovery import REVIEWS
from virt_core.apis import names

START_S = 30.0


@dataclass
class Process:
    pid: int
    port: int
    ca: CertAuthority
    kube: FakeKube
    directory: Path
    automation_port: int

    @property
    def automation(self) -> str:
        return f"127.0.0.1:{self.automation_port}"

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca.pem.decode())

    @property
    def server_tls(self) -> ssl.SSLContext:
        """As the API server connects."""
        context = self.tls
        context.load_cert_chain(self.directory / "proxy" / "tls.crt", self.directory / "proxy" / "tls.key")
        return context

    def hook(self, path: str) -> str:
        """Where the API server finds a webhook."""
        return f"{REVIEWS}{path}"

    def caller(self, timeout_s: float = 10.0, source: str = "127.0.0.1") -> Caller:
        """The API server."""
        return Caller(self.port, self.server_tls, timeout_s, source, API_SERVER)


@contextmanager
def virt_api(directory: Path) -> Iterator[Process]:
    ca = CertAuthority("virtpod")
    with fake_kube() as kube, (directory / "log").open("wb") as log:
        kube.on_request = answer
        port, automation = free_port(), free_port()
        process = subprocess.Popen(_command(directory, ca, kube, port, automation), stdout=log, stderr=log)
        try:
            started = Process(process.pid, port, ca, kube, directory, automation)
            eventually(lambda: _is_ready(started), within_s=START_S)
            yield started
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def _command(directory: Path, ca: CertAuthority, kube: FakeKube, port: int, automation: int) -> list[str]:
    serving = ca.issue("virt-api", "localhost", "127.0.0.1").write(directory / "serving")
    own = ca.issue("virt-api", names.TLS_NAME_API).write(directory / "own")
    proxy = CertAuthority("front-proxy")
    proxy.issue("front-proxy-client").write(directory / "proxy")
    (directory / "proxy-ca.crt").write_bytes(proxy.pem)
    return [
        sys.executable, "-m", "virt_api.main", "--kubeconfig", _kubeconfig(directory, kube),
        "--listen", f"127.0.0.1:{port}", "--automation-listen", f"127.0.0.1:{automation}",
        "--serving-tls-dir", str(serving), "--tls-dir", str(own),
        "--requestheader-client-ca", str(directory / "proxy-ca.crt"),
    ]  # fmt: skip


def _kubeconfig(directory: Path, kube: FakeKube) -> str:
    path = directory / "kubeconfig"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{kube.port}"}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(json.dumps(config))
    return str(path)


def _is_ready(process: Process) -> bool:
    caller = process.caller()
    try:
        return caller.ask("GET", "/readyz")[0] == 200
    except OSError:
        return False
    finally:
        caller.close()
