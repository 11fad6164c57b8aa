"""A TLS Secret as files in a directory, kept up to date: for programs that must not wait for kubelet to mount it.

kubelet takes up to two minutes to show a changed Secret, and does not start a Pod whose Secret is missing. We watch the
one Secret and write what it holds as kubelet would: a new directory for each version, and one renamed link that swaps
all files at once. What is bad (a key that is not the certificate's) or gone is never written: the old files stay.
"""

from __future__ import annotations

import base64
import binascii
import os
import shutil
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

log = get_logger(__name__)

_FILES = (TLS_CERT_FILE, TLS_KEY_FILE, TLS_CA_FILE)
_CURRENT = "..data"
_LOOK_S = 0.2
_GENERATION = "..version-"


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
        if (self._directory / _CURRENT).exists():
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


def write_files(directory: Path, contents: dict[str, bytes]) -> bool:
    """Swaps all files at once; False when they are there already. Only their owner can read them."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    old = _generation(directory)
    if old is not None and _read(old, contents) == contents:
        return False
    number = int(old.name.removeprefix(_GENERATION)) + 1 if old is not None else 1
    new = directory / f"{_GENERATION}{number}"
    # From a writer that was killed before it had swapped.
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    for name, data in contents.items():
        _write(new / name, data)
    _link(directory / _CURRENT, new.name)
    for name in contents:
        _link(directory / name, f"{_CURRENT}/{name}")
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _generation(directory: Path) -> Path | None:
    try:
        name = os.readlink(directory / _CURRENT)
    except OSError:
        return None
    number = name.removeprefix(_GENERATION)
    return directory / name if name.startswith(_GENERATION) and number.isdigit() else None


def _read(directory: Path, contents: dict[str, bytes]) -> dict[str, bytes]:
    try:
        return {name: (directory / name).read_bytes() for name in contents}
    except OSError:
        return {}


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _link(path: Path, target: str) -> None:
    """Makes or replaces a symbolic link in one step."""
    if path.is_symlink() and os.readlink(path) == target:
        return
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, path)
