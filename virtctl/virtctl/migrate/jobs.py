"""Migration jobs, and how the move of one goes, as the API tells them."""

from __future__ import annotations

import time

import msgspec

from virt_core.apis import names
from virt_core.apis.base import decode
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.moveview import LAST_FIGURES_WITHIN_S, MoveProgress
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import ApiError
from virtctl.targets import part, subresource_path

_AGAIN_S = 0.2


def of_vmi(client: KubeClient, namespace: str, vmi: str) -> list[Job]:
    """The newest last. Raises ApiError."""
    # No label has a longer value.
    selector = f"{names.LABEL_MIGRATION_VMI_NAME}={part(vmi)}"
    found = client.list(Job, namespace, label_selector=selector).items
    ours = [job for job in found if job.spec.vmi_name == vmi]
    return sorted(ours, key=lambda job: (job.metadata.creation_timestamp or "", job.metadata.name))


def unfinished(jobs: list[Job]) -> Job | None:
    return next((job for job in reversed(jobs) if job.status.phase not in names.FINAL_PHASES), None)


def progress(client: KubeClient, job: Job) -> MoveProgress | None:
    """None: nobody can say just now, or the user may not know."""
    path = subresource_path(job.metadata.namespace, job.spec.vmi_name, "migrationprogress")
    try:
        seen = decode(client.raw("GET", path), MoveProgress)
    except (ApiError, msgspec.MsgspecError):
        return None
    return seen if seen.migration_uid == job.metadata.uid else None


def last_progress(client: KubeClient, job: Job) -> MoveProgress | None:
    """Of a move that is over; of one that went well with the last figures."""
    deadline = time.monotonic() + LAST_FIGURES_WITHIN_S
    while True:
        seen = progress(client, job)
        known = job.status.phase != names.MIGRATION_SUCCEEDED or seen is None or seen.ended
        if known or time.monotonic() >= deadline:
            return seen
        time.sleep(_AGAIN_S)
