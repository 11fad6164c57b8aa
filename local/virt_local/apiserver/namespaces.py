"""What belongs to every namespace: its default account and the certificate that its Pods trust the API by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from virt_core.apis import names
from virt_local.apiserver.errors import ApiError

if TYPE_CHECKING:
    from virt_local.apiserver.server import Server

Object = dict[str, Any]

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
ROOT_CA = "kube-root-ca.crt"


def namespace_object(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def complete_namespace(server: Server, name: str) -> None:
    """Makes what is missing. A namespace that is being deleted gets nothing new."""
    record = server.store.get("namespaces", "", name)
    if record is None or record.fields.get("status.phase") == "Terminating":
        return
    place = {"namespace": name}
    wanted: list[Object] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", **place}}]
    if server.root_ca:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ROOT_CA, **place}}
        wanted.append(config | {"data": {names.TLS_CA_FILE: server.root_ca}})
    for obj in wanted:
        try:
            await server.ensure(obj)
        except ApiError as error:
            # Somebody else made it, or deletes the namespace, at this very moment.
            if error.code not in (403, 404, 409):
                raise
