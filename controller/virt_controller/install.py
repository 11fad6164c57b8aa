"""The default KubeVirt object: there from the beginning, and again when somebody deletes it.

The chart cannot create it: the object passes webhooks, which need certificates, which we make. So the chart hands it
to us as a file. It is applied as the chart's field manager: what others have written into the object stays theirs, and
what the chart no longer says is taken back. The object carries a mark of the file that it was last made from.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

from msgspec import MsgspecError

from virt_core.apis.base import from_plain
from virt_core.apis.facts import is_terminating
from virt_core.apis.kubevirt import KubeVirt
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.informer import Informer
from virt_core.kube.patch import ApplyPatch
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

FIELD_MANAGER = "virtpod-chart"
MARK = "virtpod.io/default-kubevirt"
NAME = "kubevirt"
#: kubelet shows a changed ConfigMap within a minute or two; a few seconds more do not matter.
_LOOK_AT_FILE_S = 10.0
_MAX_DELAY_S = 10.0


class DefaultKubeVirt:
    def __init__(
        self, client: KubeClient, namespace: str, file: str, *, kubevirts: Informer[KubeVirt], clock: Clock
    ) -> None:
        self._client, self._namespace, self._file, self._kubevirts = client, namespace, Path(file), kubevirts
        self._complaint = ""
        self._key = f"{namespace}/{NAME}"
        self.queue = WorkQueue(clock, "default-kubevirt", max_delay_s=_MAX_DELAY_S)
        kubevirts.add_handler(on_delete=lambda _: self.queue.add(self._key))

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop."""
        self.queue.add(self._key)
        Controller("default-kubevirt", self.queue, self.reconcile, 1, [self._kubevirts]).run(stop)

    def reconcile(self, _key: str) -> Result | None:
        try:
            document, mark = self._read()
        except (OSError, ValueError) as error:
            self._complain(str(error))
            return Result(_LOOK_AT_FILE_S)
        self._complaint = ""
        seen = self._kubevirts.get(self._key)
        if seen is None or (not is_terminating(seen) and seen.metadata.annotations.get(MARK) != mark):
            patch = ApplyPatch(document, FIELD_MANAGER)
            self._client.patch(KubeVirt, NAME, self._namespace, patch)
            log.info("default KubeVirt object applied", object=self._key, file=str(self._file), new=seen is None)
        return Result(_LOOK_AT_FILE_S)

    def _read(self) -> tuple[dict[str, Any], str]:
        """The object as it is applied, and its mark. Raises OSError, ValueError."""
        text = self._file.read_bytes()
        mark = hashlib.sha256(text).hexdigest()[:16]
        document = _parse(text)
        metadata = document.get("metadata") or {}
        if document.get("kind") != "KubeVirt" or metadata.get("name", NAME) != NAME:
            raise ValueError(f"{self._file} must hold the KubeVirt object {NAME!r}")
        try:
            from_plain(document, KubeVirt)
        except MsgspecError as error:
            raise ValueError(f"{self._file} does not hold a valid KubeVirt object: {error}") from error
        annotations = {**(metadata.get("annotations") or {}), MARK: mark}
        own = {"name": NAME, "namespace": self._namespace, "annotations": annotations}
        return {**document, "metadata": {**metadata, **own}}, mark

    def _complain(self, text: str) -> None:
        """Once for each problem."""
        if text != self._complaint:
            log.error("the default KubeVirt object cannot be read, so it is not kept up to date", error=text)
        self._complaint = text


def _parse(text: bytes) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"the file is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("the file does not hold an object")
    return document
