"""What the node must still know after a kill -9 of virt-handler: one small JSON file for each VMI and purpose.

A ghost record names the launcher of a VMI. It is written before the launcher is spoken to for the first time, so there
is never a launcher that we have changed and then forgot. The network record keeps what virt-netsetup made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from virt_core.apis.base import Struct, decode, encode
from virt_core.apis.netplan import NetReport
from virt_core.runtime.logs import get_logger
from virt_handler.pods.files import checked_name

log = get_logger(__name__)

T = TypeVar("T", bound=Struct)


class GhostRecord(Struct):
    vmi_uid: str
    namespace: str
    name: str
    pod_uid: str
    grace_seconds: int = 30

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class NetworkRecord(Struct):
    pod_uid: str
    report: NetReport
    #: RFC 3339 with microseconds: when the network was ready.
    time: str = ""


class RecordStore(Generic[T]):
    """Files `<directory>/<vmi uid>.json`, each replaced as a whole."""

    def __init__(self, directory: str, cls: type[T]) -> None:
        self._directory = directory
        self._cls = cls
        os.makedirs(directory, mode=0o700, exist_ok=True)

    def put(self, uid: str, record: T) -> None:
        path = self._path(uid)
        temporary = f"{path}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(encode(record))
        # No fsync: after a power cut there is no launcher either, and a torn file is read as none.
        os.replace(temporary, path)

    def get(self, uid: str) -> T | None:
        path = self._path(uid)
        try:
            with open(path, "rb") as file:
                return decode(file.read(), self._cls)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            log.warning("a record is damaged and was dropped", path=path)
            self.delete(uid)
            return None

    def delete(self, uid: str) -> None:
        try:
            os.unlink(self._path(uid))
        except FileNotFoundError:
            pass

    def all(self) -> Iterator[T]:
        for name in sorted(os.listdir(self._directory)):
            if name.endswith(".json") and (record := self.get(name.removesuffix(".json"))):
                yield record

    def _path(self, uid: str) -> str:
        return os.path.join(self._directory, f"{checked_name(uid)}.json")
