"""A TLS Secret as files in a directory, kept up to date: for programs that must not wait for kubelet to mount it.

kubelet takes up to two minutes to show a changed Secret, and does not start a Pod whose Secret is missing. We watch the
one Secret and write what it holds as kubelet would, all files at once. What is bad (a key that is not the
certificate's) or gone is never written: the old files stay.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable
from pathlib import Path

from virt_core.apis.config import Secret
from virt_core.apis.names import TLS_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import ApiError
from virt_core.kube.informer import Informer
from virt_core.runtime.keypair import BadPair, check_bundle, check_pair
from virt_core.runtime.logs import get_logger
from virt_core.runtime.swap import CURRENT, write_files

log = get_logger(__name__)

_FILES = (TLS_CERT_FILE, TLS_KEY_FILE, TLS_CA_FILE)
_LOOK_S = 0.2


class SecretFiles:
    """`run` is a thread body for the supervisor, `ready` a health check: None, or what it waits for."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        directory: str | Path,
        *,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._what = f"Secret {namespace}/{name}"
        self._directory, self._on_change = Path(directory), on_change
        self._there = threading.Event()
        # The first look and the watch are different threads; they must neither mix nor overtake each other.
        self._writing = threading.Lock()
        self._watched = False
        self._problem = f"waiting for {self._what}, which virt-controller's leader (or cert-manager) makes"
        if (self._directory / CURRENT).exists():
            # Left by us before a restart: good to begin with, whatever the API server does.
            self._there.set()
        self._informer = Informer(client, Secret, namespace, field_selector=f"metadata.name={name}")
        self._informer.add_handler(self._take_watched, lambda _old, new: self._take_watched(new), self._keep)

    def ready(self) -> str | None:
        """None once files are there, even if a newer Secret cannot be used: what we have works."""
        return None if self._there.is_set() else self._problem

    def is_there(self) -> bool:
        return self._there.is_set()

    def wait(self, stop: threading.Event) -> bool:
        """Until there are files. False: stopped."""
        while not self._there.wait(_LOOK_S):
            if stop.is_set():
                return False
        return True

    def fetch(self) -> bool:
        """Reads the Secret once, so that a program that starts need not wait for the watch. True: files are there."""
        try:
            self._take_first(self._client.get(Secret, self._name, self._namespace))
        except ApiError as error:
            log.info(self._problem, error=str(error))
        return self._there.is_set()

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop."""
        if not self._there.is_set():
            log.info(self._problem)
        self._informer.run(stop)

    def _take_first(self, secret: Secret) -> None:
        with self._writing:
            if not self._watched:  # What the watch brought is newer.
                self._take(secret)

    def _take_watched(self, secret: Secret) -> None:
        with self._writing:
            self._watched = True
            self._take(secret)

    def _take(self, secret: Secret) -> None:
        try:
            contents = _contents(secret)
        except BadPair as error:
            kept = "the old files stay" if self._there.is_set() else "there is nothing else yet"
            self._problem = f"{self._what} cannot be used: {error}; {kept}"
            log.error(self._problem)
            return
        if write_files(self._directory, contents):
            log.info("certificate written", secret=self._what, version=secret.metadata.resource_version)
            self._on_change()
        self._there.set()

    def _keep(self, _secret: Secret) -> None:
        log.warning(f"{self._what} was deleted; its files stay until there is a new one")


def _contents(secret: Secret) -> dict[str, bytes]:
    """Raises BadPair."""
    try:
        contents = {name: base64.b64decode(secret.data[name], validate=True) for name in _FILES}
    except KeyError as error:
        raise BadPair(f"it has no {error.args[0]}") from None
    except binascii.Error as error:
        raise BadPair(f"it is not base64: {error}") from None
    check_pair(contents[TLS_CERT_FILE], contents[TLS_KEY_FILE])
    check_bundle(contents[TLS_CA_FILE])
    return contents
