"""Which certificates there are: one Secret for each role, and no certificate with two roles."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.runtime.x509 import CLIENT, SERVER, Leaf


def roles(namespace: str) -> dict[str, Leaf]:
    """By the name of the Secret."""
    api, handler = names.tls_name_api(namespace), names.tls_name_handler(namespace)
    service = names.SERVICE_API
    # Everything under which the API server and clients inside the cluster call the Service.
    serving = (
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
    )
    return {
        names.CERTS_API_SERVING: Leaf(names.CERTS_API_SERVING, names=serving, usage=(SERVER,)),
        names.CERTS_API_CLIENT: Leaf("virt-api", names=(api,), usage=(CLIENT,)),
        # It serves virt-api, and shows itself to guests that ask for a client's certificate.
        names.CERTS_HANDLER: Leaf("virt-handler", names=(handler,), usage=(SERVER, CLIENT)),
    }
