"""Where clients send disks to: the CDIConfig that they read says it, where DataVolumes are ours (docs/decisions/0052).

Uploads and the external links of exports go to the same door, so both have the address that the administrator named.
Without one, what an earlier address had written here is taken back; what others have written stays.
"""

from __future__ import annotations

import threading
from typing import Any

from virt_controller.datavolume.whose import Whose
from virt_controller.export.entrance import Entrance
from virt_core.apis import upload
from virt_core.apis.datavolume import LABEL_IMPORTER
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.upload import CDIConfig, CDIConfigStatus
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import Forbidden, NotFound
from virt_core.kube.patch import MergePatch
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

_NAME = "upload-place"
#: Nobody waits for it: the address changes with the command line, and certificates long before they end.
_LOOK_AGAIN_S = 30.0
_MAX_DELAY_S = 10.0
_LABELS = {LABEL_IMPORTER: "true"}


class UploadPlace:
    def __init__(self, client: KubeClient, entrance: Entrance, clock: Clock) -> None:
        self._client, self._entrance, self._whose = client, entrance, Whose(client, clock)
        self._complaint = ""
        self._queue = WorkQueue(clock, _NAME, max_delay_s=_MAX_DELAY_S)

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop."""
        self._queue.add(upload.CONFIG_NAME)
        Controller(_NAME, self._queue, self.reconcile, 1, []).run(stop)

    def reconcile(self, _key: str) -> Result:
        if self._whose.ours():
            try:
                self._write(_status(self._entrance))
                self._complaint = ""
            except (Forbidden, NotFound) as error:
                self._complain(str(error))
        return Result(_LOOK_AGAIN_S)

    def _complain(self, text: str) -> None:
        """Once for each problem. Rights and definition go with uploads, the DataVolumes themselves may stay."""
        if text != self._complaint:
            log.warning("clients are not told where to send disks", error=text)
        self._complaint = text

    def _write(self, wanted: CDIConfigStatus) -> None:
        found = self._found()
        if found is None and wanted.upload_proxy_url:
            metadata = ObjectMeta(name=upload.CONFIG_NAME, labels=dict(_LABELS))
            self._client.create(CDIConfig(metadata=metadata, status=wanted))
        elif found is not None and (patch := change(found, wanted)):
            self._client.patch(CDIConfig, upload.CONFIG_NAME, "", MergePatch(patch))
        else:
            return
        log.info("clients are told where to send disks", url=wanted.upload_proxy_url or "")

    def _found(self) -> CDIConfig | None:
        try:
            return self._client.get(CDIConfig, upload.CONFIG_NAME)
        except NotFound:
            return None


def _status(entrance: Entrance) -> CDIConfigStatus:
    return CDIConfigStatus(entrance.url or None, (entrance.certificates() or None) if entrance.url else None)


def change(found: CDIConfig, wanted: CDIConfigStatus) -> dict[str, Any]:
    """What to write; empty when all is said, or when there is nothing to say and nothing of ours to take back."""
    written_by_us = _LABELS.items() <= found.metadata.labels.items()
    if found.status == wanted or not (wanted.upload_proxy_url or written_by_us):
        return {}
    status = {"uploadProxyURL": wanted.upload_proxy_url, "uploadProxyCA": wanted.upload_proxy_ca}
    return {"metadata": {"labels": _LABELS}, "status": status}
