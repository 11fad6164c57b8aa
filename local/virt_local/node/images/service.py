"""Finds the root of an image for a container: the host's own, one from the store, or one that is pulled meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_local.node.images.layout import Image, ImageError
from virt_local.node.images.pull import import_hint
from virt_local.node.images.reference import InvalidReference, normalize, pull_policy
from virt_local.node.images.root import Root
from virt_local.node.images.store import ImageStore

log = get_logger(__name__)

PULL_BACKOFF_BASE_S = 10
PULL_BACKOFF_MAX_S = 300


class ImageNotReady(Exception):
    """The container has to wait; the reason is Kubernetes' word for it. `until` None: we call back."""

    def __init__(self, reason: str, message: str, until: datetime | None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.until = until


class HostRoot(Protocol):
    def root(self) -> Root: ...


@dataclass
class _Pull:
    """The state of fetching one image: under way, or failed so many times."""

    running: bool = False
    failures: int = 0
    error: str = ""
    retry_at: datetime | None = None
    fresh_for: frozenset[str] = frozenset()


class ImageService:
    def __init__(
        self,
        store: ImageStore,
        host: HostRoot,
        host_reference: str,
        *,
        puller: Callable[[ImageStore, str], Image],
        executor: Executor,
        clock: Clock,
    ) -> None:
        self._store = store
        self._host = host
        self._host_reference = normalize(host_reference)
        self._puller = puller
        self._executor = executor
        self._clock = clock
        self._pulls: dict[str, _Pull] = {}
        self._lock = threading.Lock()

    def root(self, reference: str, policy: str, pod_uid: str, wake: Callable[[], None]) -> Root:
        """The root of an image. Raises ImageNotReady; `wake` is called when a pull has ended."""
        try:
            name = normalize(reference)
        except InvalidReference as err:
            raise ImageNotReady("InvalidImageName", str(err), self._later(PULL_BACKOFF_MAX_S)) from err
        if name == self._host_reference:
            return self._host.root()
        image = self._find(name, pull_policy(policy, reference), pod_uid, wake)
        return Root(name, f"{name.partition('@')[0]}@{image.digest}", self._unpacked(image), image.config.config)

    def content(self, reference: str, policy: str, pod_uid: str, wake: Callable[[], None]) -> Path:
        """The files of an image, for an image volume."""
        return self.root(reference, policy, pod_uid, wake).lower

    def _unpacked(self, image: Image) -> Path:
        try:
            return self._store.rootfs(image)
        except ImageError as err:
            raise ImageNotReady("ErrImagePull", str(err), self._later(PULL_BACKOFF_MAX_S)) from err

    def _find(self, name: str, policy: str, pod_uid: str, wake: Callable[[], None]) -> Image:
        try:
            image = self._store.find(name)
        except ImageError as err:
            raise ImageNotReady("ErrImagePull", str(err), self._later(PULL_BACKOFF_BASE_S)) from err
        with self._lock:
            pull = self._pulls.setdefault(name, _Pull())
            if image is not None and not self._must_pull(image, policy, pull, pod_uid):
                return image
            if policy == "Never":
                message = f"{name} is not in the store and its pull policy is Never: allow a pull, {import_hint(name)}"
                raise ImageNotReady("ErrImageNeverPull", message, self._later(PULL_BACKOFF_BASE_S))
            raise self._begin(name, pull, pod_uid, wake)

    def _must_pull(self, image: Image, policy: str, pull: _Pull, pod_uid: str) -> bool:
        """`Always` asks the registry once for each Pod, but an image that was imported here is never replaced."""
        if policy != "Always" or self._store.is_imported(image.reference):
            return False
        return pod_uid not in pull.fresh_for and pull.failures == 0

    def _begin(self, name: str, pull: _Pull, pod_uid: str, wake: Callable[[], None]) -> ImageNotReady:
        """Starts a pull unless one runs or it is too early, and says what the container waits for. Holds the lock."""
        now = self._clock.now()
        if pull.retry_at is not None and now < pull.retry_at:
            return ImageNotReady("ImagePullBackOff", f"back-off pulling image {name!r}: {pull.error}", pull.retry_at)
        if not pull.running:
            pull.running = True
            self._executor.submit(self._pull, name, pull, pod_uid, wake)
        return ImageNotReady("ContainerCreating", f"pulling image {name!r}", self._later(1))

    def _pull(self, name: str, pull: _Pull, pod_uid: str, wake: Callable[[], None]) -> None:
        error = ""
        try:
            self._puller(self._store, name)
        except ImageError as err:
            error = str(err)
        except Exception as err:
            log.exception("a pull failed in an unexpected way", image=name)
            error = f"cannot pull {name}: {err}"
        with self._lock:
            pull.running = False
            pull.error = error
            if error:
                pull.failures += 1
                delay = min(PULL_BACKOFF_BASE_S * 2 ** (pull.failures - 1), PULL_BACKOFF_MAX_S)
                pull.retry_at = self._later(delay)
            else:
                pull.failures, pull.retry_at = 0, None
                pull.fresh_for = pull.fresh_for | {pod_uid}
        wake()

    def _later(self, seconds: float) -> datetime:
        return self._clock.now() + timedelta(seconds=seconds)
