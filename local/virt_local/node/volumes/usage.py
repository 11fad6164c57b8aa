"""How much of the node's disk a Pod has taken, and whether that is more than it may."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from virt_core.apis.pods import Pod
from virt_core.apis.quantity import parse_bytes
from virt_local.node.layout import NodeLayout

#: The kubelet's word for a Pod that it ends for such a reason.
EVICTED = "Evicted"
_STORAGE = "ephemeral-storage"
_BLOCK = 512


def beyond_limit(pod: Pod, layout: NodeLayout) -> str:
    """The sentence for the Pod's status when it has to go; empty while all is well. Memory has its own limit."""
    used = {name: taken(layout.volume(pod.metadata.uid, "empty-dir", name)) for name, _ in _on_disk(pod)}
    for name, limit in _on_disk(pod):
        if limit and used[name] > parse_bytes(limit):
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}". '
    total = _total_limit(pod)
    if total is not None and sum(used.values()) + _beside(pod, layout) > total:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {total}. "
    return ""


def is_limited(pod: Pod) -> bool:
    return _total_limit(pod) is not None or any(limit for _, limit in _on_disk(pod))


def _on_disk(pod: Pod) -> Iterator[tuple[str, str | int | float | None]]:
    for volume in pod.spec.volumes:
        if volume.empty_dir is not None and volume.empty_dir.medium == "":
            yield volume.name, volume.empty_dir.size_limit


def _total_limit(pod: Pod) -> int | None:
    limits = [
        c.resources.limits[_STORAGE] for c in pod.spec.containers if c.resources and _STORAGE in c.resources.limits
    ]
    return sum(parse_bytes(limit) for limit in limits) if limits else None


def _beside(pod: Pod, layout: NodeLayout) -> int:
    """Logs, and what containers wrote into their own roots."""
    meta = pod.metadata
    roots = layout.sandbox(meta.uid).glob("containers/*/upper")
    return sum(map(taken, (layout.logs(meta.namespace, meta.name, meta.uid), *roots)))


def taken(root: Path) -> int:
    """Bytes on the disk, each file once; not what is mounted below, nor what a link leads to."""
    seen: dict[tuple[int, int], int] = {}
    for found in _stats(root):
        seen[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
    return sum(seen.values())


def _stats(root: Path) -> Iterator[os.stat_result]:
    todo = [os.fspath(root)]
    try:
        device = os.lstat(root).st_dev
    except FileNotFoundError:
        return
    while todo:
        try:
            entries = list(os.scandir(todo.pop()))
        except (FileNotFoundError, NotADirectoryError):
            continue  # It was there a moment ago.
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if found.st_dev == device:
                yield found
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
