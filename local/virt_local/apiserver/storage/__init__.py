"""Objects on disk, in memory and on their way to watchers."""

from virt_local.apiserver.storage.database import InUse
from virt_local.apiserver.storage.feed import Change, Expired, Watcher
from virt_local.apiserver.storage.record import Record
from virt_local.apiserver.storage.store import Mismatch, Store

__all__ = ["Change", "Expired", "InUse", "Mismatch", "Record", "Store", "Watcher"]
