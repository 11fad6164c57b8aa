"""What the node must still know after a kill -9 of virt-handler: one small JSON file for each Pod and purpose.

A ghost record names a launcher Pod and its VMI. It is written before the launcher is spoken to for the first time, so
there is never a launcher that we have changed and then forgot. The network record keeps what virt-netsetup made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from virt_core.apis.base import Struct, decode, encode
from virt_core.apis.netplan import NetReport
from virt_core.runtime.files import private_directory
from virt_core.runtime.logs import get_logger
from virt_handler.pods.files import checked_name

log = get_logger(__name__)


class PodRecord(Struct):
    """Names the Pod that it is about, so that the content alone says where it belongs."""

    pod_uid: str


T = TypeVar("T", bound=PodRecord)


class GhostRecord(PodRecord):
    vmi_uid: str
    namespace: str
    name: str
    grace_seconds: int = 30

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class NetworkRecord(PodRecord):
    report: NetReport
    #: RFC 3339 with microseconds: when the network was ready.
    time: str = ""


class RecordStore(Generic[T]):
    """Files `<directory>/<pod uid>.json`, each replaced as a whole."""

    def __init__(self, directory: str, cls: type[T]) -> None:
        self._directory = directory
        self._cls = cls
        private_directory(directory)

    def put(self, record: T) -> None:
        path = self._path(record.pod_uid)
        temporary = f"{path}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(encode(record))
        # No fsync: after a power cut there is no launcher either, and a torn file is read as none.
        os.replace(temporary, path)

    def get(self, pod_uid: str) -> T | None:
        path = self._path(pod_uid)
        try:
            with open(path, "rb") as file:
                return decode(file.read(), self._cls)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            log.warning("a record is damaged and was dropped", path=path)
            self.delete(pod_uid)
            return None

    def delete(self, pod_uid: str) -> None:
        try:
            os.unlink(self._path(pod_uid))
        except FileNotFoundError:
            pass

    def all(self) -> Iterator[T]:
        for name in self._names():
            if record := self.get(name):
                yield record

    def take_over(self) -> None:
        """Puts what an older virt-handler wrote, one file for each VMI, where it belongs. A record of ours is newer."""
        for name in self._names():
            record = self.get(name)
            if record is None or record.pod_uid == name:
                continue
            if os.path.exists(self._path(record.pod_uid)):
                self.delete(name)
            else:
                os.rename(self._path(name), self._path(record.pod_uid))
                log.info("took over a record of an older version", name=name, pod=record.pod_uid)

    def _names(self) -> list[str]:
        return sorted(name.removesuffix(".json") for name in os.listdir(self._directory) if name.endswith(".json"))

    def _path(self, pod_uid: str) -> str:
        return os.path.join(self._directory, f"{checked_name(pod_uid)}.json")
