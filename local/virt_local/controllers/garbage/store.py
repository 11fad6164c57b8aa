"""The garbage collector's hands: deletes and edits objects through the API server's own verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from virt_local.apiserver import errors
from virt_local.apiserver.builtins.strategy import is_removable
from virt_local.apiserver.hooks import User
from virt_local.apiserver.patches.ownership import forget_absent
from virt_local.apiserver.request import Target
from virt_local.apiserver.storage import Mismatch, Record
from virt_local.apiserver.verbs.call import Call
from virt_local.apiserver.verbs.delete import delete_object
from virt_local.controllers.garbage.graph import Item, Owner

if TYPE_CHECKING:
    from virt_local.apiserver.server import Server

Object = dict[str, Any]

COLLECTOR = User(
    "system:serviceaccount:kube-system:generic-garbage-collector",
    ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:masters", "system:authenticated"),
)


class _OwnerReference(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    block_owner_deletion: bool | None = None


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    owner_references: list[_OwnerReference] | None = None
    finalizers: list[str] | None = None
    deletion_timestamp: str | None = None


class _Peek(msgspec.Struct, gc=False):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Peek)


def item_of(record: Record) -> Item:
    """Reads only the metadata of a record; the rest is skipped by the decoder."""
    metadata = _decoder.decode(record.raw).metadata
    return Item(
        uid=record.uid,
        storage=record.resource,
        namespace=record.namespace,
        name=record.name,
        owners=tuple(Owner(ref.uid, bool(ref.block_owner_deletion)) for ref in metadata.owner_references or ()),
        deleting=metadata.deletion_timestamp is not None,
        finalizers=tuple(metadata.finalizers or ()),
    )


class Hands:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def delete(self, item: Item, policy: str) -> None:
        """Deletes exactly this object. One that is gone, or replaced, is fine."""
        kind = self._server.catalog.stored(item.storage)
        if kind is None:
            return
        target = Target("", "delete", kind.group, kind.version, kind.plural, item.namespace, item.name)
        call = Call(self._server, target, kind, COLLECTOR)
        options = {"preconditions": {"uid": item.uid}, "propagationPolicy": policy}
        try:
            await delete_object(call, options)
        except errors.ApiError as err:
            if err.code not in (404, 409):
                raise

    async def drop_owners(self, item: Item, owners: frozenset[str]) -> None:
        def edit(obj: Object) -> None:
            kept = [ref for ref in obj["metadata"].get("ownerReferences") or () if ref.get("uid") not in owners]
            _set(obj["metadata"], "ownerReferences", kept)

        await self._edit(item, edit)

    async def drop_finalizer(self, item: Item, finalizer: str) -> None:
        def edit(obj: Object) -> None:
            kept = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
            _set(obj["metadata"], "finalizers", kept)

        await self._edit(item, edit)

    async def finish_namespace(self, item: Item) -> None:
        def edit(obj: Object) -> None:
            _set(obj.setdefault("spec", {}), "finalizers", [])

        await self._edit(item, edit)

    async def _edit(self, item: Item, edit: Any) -> None:
        """Stores the edited object, or removes it when nothing holds it any more. Raises Mismatch for a retry."""
        store = self._server.store
        record = store.get(item.storage, item.namespace, item.name)
        kind = self._server.catalog.stored(item.storage)
        if record is None or record.uid != item.uid or kind is None:
            return
        obj = record.object()
        edit(obj)
        forget_absent(obj, kind.node)
        if is_removable(kind, obj):
            await store.delete(item.storage, item.namespace, item.name, expect=record.revision)
        else:
            await store.put(item.storage, obj, expect=record.revision)


def _set(target: Object, key: str, value: list[Any]) -> None:
    if value:
        target[key] = value
    else:
        target.pop(key, None)


RETRIED = (errors.ApiError, Mismatch)
