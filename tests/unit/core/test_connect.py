"""Kubeconfigs in all the forms people have, and the Pod's own service account."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from framework.certs import CertAuthority

from virt_core.apis.pods import Pod
from virt_core.kube import connect
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import ConnectError, Connection, load_connection
from virt_core.kube.errors import Unreachable


def config(user: dict[str, Any], cluster: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "current-context": "main",
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "mine"}},
            {"name": "other", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://host:1234/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }


def write(path: Path, content: dict[str, Any], *, as_yaml: bool = True) -> str:
    path.write_text(yaml.safe_dump(content) if as_yaml else json.dumps(content))
    return str(path)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("as_yaml", [True, False])
def test_inline_material_in_yaml_and_json(tmp_path: Path, as_yaml: bool) -> None:
    user = {
        "client-certificate-data": base64.b64encode(b"C").decode(),
        "client-key-data": base64.b64encode(b"K").decode(),
    }
    cluster = {"certificate-authority-data": base64.b64encode(b"A").decode()}
    found = load_connection(write(tmp_path / "c", config(user, cluster), as_yaml=as_yaml))
    assert (found.server, found.namespace) == ("https://host:1234", "mine")
    assert (found.cert_pem, found.key_pem, found.ca_pem) == (b"C", b"K", b"A")


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "my.crt").write_bytes(b"C")
    (tmp_path / "my.key").write_bytes(b"K")
    user = {"client-certificate": "my.crt", "client-key": str(tmp_path / "my.key")}
    found = load_connection(write(tmp_path / "c", config(user)))
    assert (found.cert_pem, found.key_pem) == (b"C", b"K")


def test_a_token_becomes_a_header(tmp_path: Path) -> None:
    found = load_connection(write(tmp_path / "c", config({"token": "secret"})))
    assert found.headers() == {"Authorization": "Bearer secret"}


def test_basic_auth_and_impersonation(tmp_path: Path) -> None:
    found = load_connection(write(tmp_path / "c", config({"username": "u", "password": "p", "as": "boss"})))
    assert found.headers() == {"Authorization": "Basic dTpw", "Impersonate-User": "boss"}


def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("one\n")
    found = load_connection(write(tmp_path / "c", config({"tokenFile": "token"})))
    assert found.headers()["Authorization"] == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    assert found.headers()["Authorization"] == "Bearer one"
    monkeypatch.setattr(connect, "_TOKEN_REREAD_S", -1.0)
    assert found.headers()["Authorization"] == "Bearer two"


def test_context_by_name_and_by_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "c", config({"token": "t"}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{path}")
    assert load_connection(None, "other").namespace == "default"


def test_home_is_the_last_resort(tmp_path: Path) -> None:
    (tmp_path / "home/.kube").mkdir(parents=True)
    write(tmp_path / "home/.kube/config", config({"token": "t"}))
    assert load_connection().server == "https://host:1234"


def test_in_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"token": "T", "ca.crt": "CA", "namespace": "ns1"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(connect, "SERVICE_ACCOUNT_DIR", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    found = load_connection()
    assert (found.server, found.namespace) == ("https://[fd00::1]:6443", "ns1")
    assert found.headers() == {"Authorization": "Bearer T"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("current-context: x\n", "has no context 'x'"),
        ("{}", "names no current-context"),
        ("[]", "is not a map"),
        ("a: [", "neither JSON nor YAML"),
        ('{"current-context": 1', "neither JSON nor YAML"),
    ],
)
def test_a_broken_kubeconfig_is_named_with_its_fault(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "broken"
    path.write_text(content)
    with pytest.raises(ConnectError, match=complaint) as caught:
        load_connection(str(path))
    assert str(path) in str(caught.value)


def test_nothing_found_says_what_to_give() -> None:
    with pytest.raises(ConnectError, match="--kubeconfig"):
        load_connection()
    with pytest.raises(ConnectError, match="/nowhere does not exist"):
        load_connection("/nowhere")


def test_the_usual_path_does_not_import_the_kubernetes_package(tmp_path: Path) -> None:
    path = write(tmp_path / "c", config({"token": "t"}))
    code = (
        "import sys; from virt_core.kube.client import KubeClient; from virt_core.kube.connect import load_connection;"
        f"KubeClient(load_connection({path!r})); assert 'kubernetes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_an_exec_user_is_logged_in_by_the_kubernetes_package(tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin"},
    }
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "echo",
        "args": [json.dumps(credential)],
        "interactiveMode": "Never",
    }
    found = load_connection(write(tmp_path / "c", config({"exec": plugin})))
    assert found.headers() == {"Authorization": "Bearer from-plugin"}


class TlsServer:
    """Answers one request after a TLS handshake that demands a client certificate."""

    def __init__(self, ca: CertAuthority, tmp_path: Path) -> None:
        leaf = ca.issue("server", "localhost").write(tmp_path / "server")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(leaf / "tls.crt", leaf / "tls.key")
        self.context.load_verify_locations(leaf / "ca.crt")
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://localhost:{self.listener.getsockname()[1]}"
        self.peer = ""
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        plain, _ = self.listener.accept()
        try:
            with self.context.wrap_socket(plain, server_side=True) as connection:
                subject: Any = (connection.getpeercert() or {}).get("subject")
                self.peer = subject[0][0][1]
                connection.recv(65536)
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 29\r\n\r\n{"metadata": {}, "items": []}')
        except ssl.SSLError:
            plain.close()


def test_mutual_tls_with_inline_certificates(tmp_path: Path) -> None:
    ca = CertAuthority()
    server, client = TlsServer(ca, tmp_path), ca.issue("virt-test")
    connection = Connection(server.url, ca_pem=ca.pem, cert_pem=client.cert, key_pem=client.key)
    assert KubeClient(connection).list(Pod).items == []
    server.thread.join(5)
    server.listener.close()
    assert server.peer == "virt-test"


def test_a_server_of_another_ca_is_not_trusted(tmp_path: Path) -> None:
    server = TlsServer(CertAuthority(), tmp_path)
    with pytest.raises(Unreachable, match=r"(?i)certificate verify failed"):
        KubeClient(Connection(server.url, ca_pem=CertAuthority().pem)).raw("POST", "/x")
    server.thread.join(5)
    server.listener.close()
