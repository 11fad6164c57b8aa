"""Where the API server is and how we prove who we are: from a kubeconfig, or from the Pod we run in.

Our own reader covers certificates, tokens and token files, in JSON or YAML. The `kubernetes` package costs up to a
second to import, so it is only called for users that an external program or an auth provider logs in.
"""

from __future__ import annotations

import base64
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from virt_core.apis import names
from virt_core.runtime.keypair import load_pair

SERVICE_ACCOUNT_DIR = Path(names.PATH_SERVICE_ACCOUNT)
#: Bound tokens are renewed on disk; kubelet does it at 80 % of an hour or more.
_TOKEN_REREAD_S = 60.0


class ConnectError(Exception):
    """No usable connection settings; the message says which file and what is missing."""


@dataclass
class Connection:
    server: str
    ca_pem: bytes = b""
    cert_pem: bytes = b""
    key_pem: bytes = b""
    token: str = ""
    token_file: str = ""
    basic_auth: str = ""
    insecure: bool = False
    #: Name to expect in the server's certificate, where it is not the host of the URL.
    tls_server_name: str = ""
    namespace: str = "default"
    impersonate: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = self.server.rstrip("/")
        self._token_lock = threading.Lock()
        self._token_read_at = float("-inf")

    def headers(self) -> dict[str, str]:
        """The headers that say who we are. Call it for each request: tokens are renewed."""
        headers = dict(self.impersonate)
        if token := self._current_token():
            headers["Authorization"] = f"Bearer {token}"
        elif self.basic_auth:
            headers["Authorization"] = f"Basic {self.basic_auth}"
        return headers

    def ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.ca_pem.decode() if self.ca_pem else None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert_pem:
            load_pair(context, self.cert_pem, self.key_pem)
        return context

    def _current_token(self) -> str:
        if not self.token_file:
            return self.token
        with self._token_lock:
            if time.monotonic() - self._token_read_at > _TOKEN_REREAD_S:
                self.token = Path(self.token_file).read_text().strip()
                self._token_read_at = time.monotonic()
            return self.token


def load_connection(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """From the given file, else $KUBECONFIG, else ~/.kube/config, else the Pod's service account."""
    for path in _candidates(kubeconfig):
        if path.exists():
            return _from_file(path, context)
    if kubeconfig:
        raise ConnectError(f"kubeconfig {kubeconfig} does not exist")
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT_DIR / "token").exists():
        return _in_cluster()
    raise ConnectError("no kubeconfig found: give --kubeconfig FILE or set KUBECONFIG")


def _candidates(kubeconfig: str | None) -> list[Path]:
    if kubeconfig:
        return [Path(kubeconfig)]
    if listed := os.environ.get("KUBECONFIG", ""):
        return [Path(p) for p in listed.split(os.pathsep) if p]
    return [Path.home() / ".kube" / "config"]


def _in_cluster() -> Connection:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    namespace = SERVICE_ACCOUNT_DIR / "namespace"
    return Connection(
        server=f"https://{host}:{port}",
        ca_pem=(SERVICE_ACCOUNT_DIR / names.TLS_CA_FILE).read_bytes(),
        token_file=str(SERVICE_ACCOUNT_DIR / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def _from_file(path: Path, context_name: str | None) -> Connection:
    config = _parse(path)
    name = context_name or config.get("current-context") or ""
    if not name:
        raise ConnectError(f"kubeconfig {path} names no current-context: give --context")
    context = _named(config, "contexts", "context", name, path)
    cluster = _named(config, "clusters", "cluster", context.get("cluster", ""), path)
    user = _named(config, "users", "user", context["user"], path) if context.get("user") else {}
    if not cluster.get("server"):
        raise ConnectError(f"{path}: cluster {context.get('cluster')!r} has no server")
    if user.get("exec") or user.get("auth-provider"):
        user = _foreign_login(path, name)
    connection = _connection(cluster, user, path.parent)
    connection.namespace = context.get("namespace") or "default"
    return connection


def _connection(cluster: dict[str, Any], user: dict[str, Any], base: Path) -> Connection:
    basic = ""
    if user.get("username"):
        basic = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
    token_file = user.get("tokenFile", "")
    return Connection(
        server=cluster["server"],
        ca_pem=_material(cluster, "certificate-authority", base),
        cert_pem=_material(user, "client-certificate", base),
        key_pem=_material(user, "client-key", base),
        token=user.get("token", ""),
        token_file=str(base / token_file) if token_file else "",
        basic_auth=basic,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=cluster.get("tls-server-name", ""),
        impersonate={"Impersonate-User": user["as"]} if user.get("as") else {},
    )


def _material(entry: dict[str, Any], key: str, base: Path) -> bytes:
    """A certificate or key: inline as base64, or a file relative to the kubeconfig."""
    try:
        if inline := entry.get(f"{key}-data"):
            return base64.b64decode(inline)
        if file := entry.get(key):
            return Path(base, file).read_bytes()
    except (OSError, ValueError) as error:
        raise ConnectError(f"the kubeconfig's {key} cannot be read: {error}") from error
    return b""


def _named(config: dict[str, Any], section: str, key: str, name: str, path: Path) -> dict[str, Any]:
    for entry in config.get(section) or []:
        if entry.get("name") == name:
            return dict(entry.get(key) or {})
    raise ConnectError(f"{path} has no {key} {name!r}")


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConnectError(f"kubeconfig {path} cannot be read: {error.strerror}") from error
    try:
        config = msgspec.json.decode(text) if text.lstrip()[:1] == b"{" else _parse_yaml(text)
    except (ValueError, msgspec.MsgspecError) as error:
        raise ConnectError(f"kubeconfig {path} is neither JSON nor YAML: {error}") from error
    if not isinstance(config, dict):
        raise ConnectError(f"kubeconfig {path} is not a map")
    return config


def _parse_yaml(text: bytes) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _foreign_login(path: Path, context: str) -> dict[str, Any]:
    """Lets the `kubernetes` package run an exec plugin or auth provider, and takes over what it found."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise ConnectError(
            f"{path}: this user logs in by a plugin, which needs the Python package `kubernetes`"
        ) from error
    settings = client.Configuration()
    load = cast("Callable[..., None]", config.load_kube_config)
    load(config_file=str(path), context=context, client_configuration=settings)
    authorization = settings.get_api_key_with_prefix("authorization") or settings.get_api_key_with_prefix("BearerToken")
    user: dict[str, Any] = {"client-certificate": settings.cert_file, "client-key": settings.key_file}
    if authorization:
        user["token"] = authorization.removeprefix("Bearer ").strip()
    return user
