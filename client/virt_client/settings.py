"""Where the service is and who we are, from a kubeconfig.

The address and the CA of the service are in the extension `virtpod.io/automation` of the kubeconfig's cluster, as
`virt-local` writes it; both can be given instead. The service takes tokens only, so a user with a client certificate
needs one beside it: `kubectl create token ACCOUNT`.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXTENSION = "virtpod.io/automation"

Token = str | Callable[[], str]


class SettingsError(Exception):
    """Something is missing; the message says what and where."""


@dataclass(frozen=True, slots=True)
class Settings:
    address: str
    token: Token
    ca_pem: bytes
    namespace: str
    #: The name in the service's certificate, where the address is another: that of a Pod or of a forwarded port.
    server_name: str = ""


def load(
    kubeconfig: str | None, context: str | None, *, address: str | None, token: Token | None, ca_file: str | None
) -> Settings:
    """What is given wins over what the kubeconfig says. Raises SettingsError."""
    path = Path(kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config").expanduser()
    config = _parse(path)
    chosen = _named(config, "contexts", context or config.get("current-context") or "", path)["context"]
    cluster = _named(config, "clusters", chosen.get("cluster", ""), path)["cluster"]
    user = _named(config, "users", chosen["user"], path).get("user") or {} if chosen.get("user") else {}
    extension = _extension(cluster)
    ca = Path(ca_file).read_bytes() if ca_file else base64.b64decode(extension.get("certificate-authority-data", ""))
    found = address or extension.get("address", "")
    if not found:
        raise SettingsError(f"{path} does not say where the automation service is ({EXTENSION}): give address=")
    return Settings(
        address=found,
        token=token or _token(user, path),
        ca_pem=ca,
        namespace=chosen.get("namespace") or "default",
        server_name=extension.get("tls-server-name", "") if not address else "",
    )


def _token(user: dict[str, Any], path: Path) -> Token:
    if user.get("token"):
        return str(user["token"])
    if user.get("tokenFile"):
        file = path.parent / user["tokenFile"]
        return lambda: file.read_text().strip()
    raise SettingsError(
        f"the user in {path} has no token, and the automation service takes nothing else: "
        "give token=, e.g. of `kubectl create token ACCOUNT`"
    )


def _extension(cluster: dict[str, Any]) -> dict[str, str]:
    for each in cluster.get("extensions") or []:
        if each.get("name") == EXTENSION:
            return dict(each.get("extension") or {})
    return {}


def _named(config: dict[str, Any], section: str, name: str, path: Path) -> dict[str, Any]:
    for entry in config.get(section) or []:
        if entry.get("name") == name:
            return dict(entry)
    raise SettingsError(f"{path} has no {name!r} among its {section}")


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except OSError as error:
        raise SettingsError(f"kubeconfig {path} cannot be read: {error.strerror}") from error
    try:
        config = json.loads(text) if text.lstrip().startswith("{") else _yaml(text)
    except ValueError as error:
        raise SettingsError(f"kubeconfig {path} is neither JSON nor YAML: {error}") from error
    if not isinstance(config, dict):
        raise SettingsError(f"kubeconfig {path} is not a map")
    return config


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
