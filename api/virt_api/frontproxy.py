"""Whom to believe when it speaks for a user: the API server's aggregation layer, as the cluster describes it.

The API server writes down its client CA, the names in its certificate and the headers it uses in one ConfigMap. We
follow it: a cluster that gives its aggregation layer a new CA must not have to restart us.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from virt_core.apis.config import ConfigMap
from virt_core.kube.client import KubeClient
from virt_core.kube.informer import Informer
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """Without a CA nobody is believed. Without names every certificate of that CA is."""

    ca: bytes = b""
    names: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    def trusts(self, certificate: Any) -> bool:
        """`certificate` has been verified by TLS against the CA; None when there was none."""
        if not self.ca or not certificate:
            return False
        return not self.names or common_name(certificate) in self.names


def common_name(certificate: Any) -> str:
    """The CN of a certificate that TLS has verified; empty when there is none."""
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def from_config_map(config: ConfigMap) -> FrontProxy:
    """Raises ValueError for a list that is none."""
    defaults, data = FrontProxy(), config.data
    return FrontProxy(
        ca=data.get("requestheader-client-ca-file", "").encode(),
        names=frozenset(_strings(data, "requestheader-allowed-names", ())),
        user_headers=_strings(data, "requestheader-username-headers", defaults.user_headers),
        uid_headers=_strings(data, "requestheader-uid-headers", defaults.uid_headers),
        group_headers=_strings(data, "requestheader-group-headers", defaults.group_headers),
        extra_prefixes=_strings(data, "requestheader-extra-headers-prefix", defaults.extra_prefixes),
    )


def _strings(data: dict[str, str], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    if not data.get(key):
        return default
    try:
        found = msgspec.json.decode(data[key])
    except msgspec.MsgspecError as error:
        raise ValueError(f"{key} is not a JSON list: {error}") from None
    if not isinstance(found, list) or not all(isinstance(value, str) for value in found):
        raise ValueError(f"{key} is not a JSON list of strings")
    return tuple(found) or default


class FixedProxy:
    """As the command line says."""

    def __init__(self, proxy: FrontProxy) -> None:
        self._proxy = proxy

    def current(self) -> FrontProxy:
        return self._proxy

    def ready(self) -> None:
        return None


class FrontProxyWatcher:
    """Thread safe. Until the ConfigMap has been read, and when it goes, nobody is believed."""

    def __init__(self, client: KubeClient, on_change: Callable[[FrontProxy], object] = lambda _: None) -> None:
        self._current = FrontProxy()
        self._on_change = on_change
        self._informer = Informer(client, ConfigMap, NAMESPACE, field_selector=f"metadata.name={NAME}")
        self._informer.add_handler(self._look, lambda _old, new: self._look(new), lambda _: self._set(FrontProxy()))

    def current(self) -> FrontProxy:
        return self._current

    def ready(self) -> str | None:
        return None if self._informer.has_synced() else f"ConfigMap {NAMESPACE}/{NAME} has not been read yet"

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop."""
        self._informer.run(stop)

    def _look(self, config: ConfigMap) -> None:
        try:
            self._set(from_config_map(config))
        except ValueError as error:
            log.error("the settings of the aggregation layer are not taken over", config_map=NAME, error=str(error))

    def _set(self, found: FrontProxy) -> None:
        if found == self._current:
            return
        # The server asks for certificates of the new CA before anybody is judged by the new names.
        self._on_change(found)
        self._current = found
        log.info("aggregation layer", names=sorted(found.names) or "any", ca=bool(found.ca))
