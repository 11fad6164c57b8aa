"""Which certificates there are: one Secret for each role, one for each node on request, and none with two roles."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.runtime.x509 import CLIENT, SERVER, Leaf


def roles(namespace: str, *, serving: bool = True) -> dict[str, Leaf]:
    """By the name of the Secret. Without `serving`: only what our own programs show one another."""
    calls = {names.CERTS_API_CLIENT: Leaf("virt-api", names=(names.tls_name_api(namespace),), usage=(CLIENT,))}
    return {names.CERTS_API_SERVING: _serving(namespace), **calls} if serving else calls


def node_role(node: str, namespace: str) -> Leaf:
    """It serves virt-api, calls other nodes, and shows itself to guests that ask for a client's certificate."""
    return Leaf("virt-handler", names=(names.tls_name_node(node, namespace),), usage=(SERVER, CLIENT))


def _serving(namespace: str) -> Leaf:
    """Everything under which the API server and clients inside the cluster call the Service."""
    service = names.SERVICE_API
    hosts = (
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
    )
    return Leaf(names.CERTS_API_SERVING, names=hosts, usage=(SERVER,))
