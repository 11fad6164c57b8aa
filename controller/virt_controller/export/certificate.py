"""The certificate of one exporter: an authority that signs it and nothing else, and whose key is thrown away."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from virt_core.apis import exportplan
from virt_core.apis.names import TLS_CERT_FILE, TLS_KEY_FILE

LIFE = timedelta(hours=24)
#: An exporter ends before its certificate does, and the next one gets a new one.
USED = timedelta(hours=23)


@dataclass(frozen=True, slots=True)
class Issued:
    authority: str  #: Whom clients trust.
    files: dict[str, str]

    def __repr__(self) -> str:
        return "Issued(…)"


def issue(namespace: str, export: str, now: datetime) -> Issued:
    # What makes certificates costs 10 MiB: only those pay who need it.
    from virt_core.runtime.x509 import SERVER, Leaf, make_authority, make_leaf

    service = f"{exportplan.service_name(export)}.{namespace}"
    authority = make_authority(f"virt-export-{namespace}"[:64], now, LIFE)
    names = (f"{service}.svc", service, f"{service}.svc.cluster.local")
    leaf = make_leaf(authority, Leaf(exportplan.PROGRAM, names=names, usage=(SERVER,)), now, LIFE)
    files = {TLS_CERT_FILE: leaf.cert_pem.decode(), TLS_KEY_FILE: leaf.key_pem.decode()}
    return Issued(authority.cert_pem.decode(), files)
