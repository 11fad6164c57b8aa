"""How to reach a server under test: its address, its CA, and an administrator's certificate."""

from __future__ import annotations

import base64
import socket
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

REAL, LOCAL = "kube-apiserver", "virt-local"


@dataclass
class Engine:
    """`host` is an address of this machine that the server can call back: webhooks and aggregated APIs listen there."""

    name: str
    url: str
    ca: bytes
    cert: bytes
    key: bytes
    host: str
    _pools: dict[bool, urllib3.PoolManager] = field(default_factory=dict)

    def pool(self, *, anonymous: bool = False) -> urllib3.PoolManager:
        """Connections with the administrator's certificate, or with none."""
        if anonymous not in self._pools:
            context = self.context(anonymous=anonymous)
            self._pools[anonymous] = urllib3.PoolManager(ssl_context=context, retries=False, maxsize=8)
        return self._pools[anonymous]

    @property
    def user(self) -> str:
        """The administrator's name."""
        subject = x509.load_pem_x509_certificate(self.cert).subject
        return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    def context(self, *, anonymous: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.ca.decode())
        if not anonymous:
            with tempfile.TemporaryDirectory() as directory:
                cert, key = Path(directory, "crt"), Path(directory, "key")
                cert.write_bytes(self.cert)
                key.write_bytes(self.key)
                context.load_cert_chain(cert, key)
        return context

    def close(self) -> None:
        for pool in self._pools.values():
            pool.clear()


def from_kubeconfig(path: Path, host: str) -> Engine:
    """The cluster of a kubeconfig's current context; its user must have a client certificate."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    return Engine(
        REAL,
        cluster["server"],
        _data(cluster, "certificate-authority"),
        _data(user, "client-certificate"),
        _data(user, "client-key"),
        host,
    )


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _data(holder: dict[str, str], name: str) -> bytes:
    if f"{name}-data" in holder:
        return base64.b64decode(holder[f"{name}-data"])
    return Path(holder[name]).read_bytes()


def reachable_address(path: Path) -> str:
    """The address of this machine from which the cluster is reached: there it reaches us. Never loopback."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    server = urlsplit(_named(config["clusters"], context["cluster"])["cluster"]["server"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((server.hostname or "", server.port or 443))
        return str(probe.getsockname()[0])
