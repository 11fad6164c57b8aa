"""Whose DataVolumes they are: CDI's, or ours. The definition says so (docs/decisions/0047)."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from virt_core.apis.apiextensions import CustomResourceDefinition
from virt_core.apis.datavolume import CDI_LABELS, DEFINITION, LABEL_IMPORTER
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import NotFound
from virt_core.runtime.clock import Clock

_LOOK_AGAIN_S = 30.0


def is_ours(labels: Mapping[str, str]) -> bool:
    """We brought it, and CDI has not taken it over."""
    return labels.get(LABEL_IMPORTER) == "true" and not any(label in labels for label in CDI_LABELS)


class Whose:
    """Asked before each step; remembered for a moment."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._lock = threading.Lock()
        self._answer, self._until = False, float("-inf")

    def ours(self) -> bool:
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._until:
                self._answer, self._until = self._look(), now + _LOOK_AGAIN_S
            return self._answer

    def _look(self) -> bool:
        try:
            found = self._client.get(CustomResourceDefinition, DEFINITION)
        except NotFound:
            return False
        return is_ours(found.metadata.labels)
