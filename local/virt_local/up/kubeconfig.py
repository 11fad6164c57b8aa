"""Kubeconfig files. They are written as JSON, which is YAML too, so our programs read them without a YAML parser."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virt_local.up.pki import write_secret


@dataclass(frozen=True, slots=True)
class Credentials:
    """A client certificate (files), or a file that holds a token."""

    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None

    def to_plain(self) -> dict[str, Any]:
        if self.token_file is not None:
            return {"tokenFile": str(self.token_file)}
        if self.cert is None or self.key is None:
            raise ValueError("credentials need a certificate and a key, or a token")
        return {"client-certificate-data": _inline(self.cert), "client-key-data": _inline(self.key)}


@dataclass(frozen=True, slots=True)
class Automation:
    """Where automation/v1 is; `virt_client` reads it from the kubeconfig's cluster."""

    address: str
    ca_pem: bytes

    def to_plain(self) -> dict[str, Any]:
        ca = base64.b64encode(self.ca_pem).decode()
        return {
            "name": "virtpod.io/automation",
            "extension": {"address": self.address, "certificate-authority-data": ca},
        }


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    ca_pem: bytes,
    user: str,
    credentials: Credentials,
    automation: Automation | None = None,
) -> Path:
    cluster: dict[str, Any] = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    if automation is not None:
        cluster["extensions"] = [automation.to_plain()]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "virt-local", "cluster": cluster},
        ],
        "users": [{"name": user, "user": credentials.to_plain()}],
        "contexts": [{"name": "virt-local", "context": {"cluster": "virt-local", "user": user}}],
        "current-context": "virt-local",
        "preferences": {},
    }
    write_secret(path, (json.dumps(config, indent=2) + "\n").encode())
    return path


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
