"""What is in the cluster now, read in one go, and what of it matters to the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from cryptography import x509

from virt_controller.certificates.authorities import Authorities, read_authorities
from virt_controller.certificates.bundles import decoded, facts, held, identify, parse, render
from virt_controller.certificates.model import Leaf, State
from virt_controller.certificates.targets import TARGETS, Target
from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.names import CERTS_BUNDLE, CERTS_CA, TLS_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE, TLS_SIGNER_FILE
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.errors import NotFound
from virt_core.runtime.certfacts import BACKDATE
from virt_core.runtime.x509 import Leaf as Role
from virt_core.runtime.x509 import Pair, issued_by, load_pair, says

T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects as they are, and the authorities that follow from them."""

    secrets: Mapping[str, Secret | None]
    targets: Mapping[str, Any]
    #: What every node reads: whom to trust, and who signs.
    shared: ConfigMap | None
    authorities: Authorities
    state: State


def take(
    client: KubeClient, namespace: str, roles: Mapping[str, Role], now: datetime, holders: Sequence[Target] = TARGETS
) -> Snapshot:
    """Raises ApiError. Straight from the API server: a decision on an old copy could sign with a CA that is gone."""
    secrets = {name: _get(client, Secret, name, namespace) for name in (CERTS_CA, *roles)}
    targets = {target.key: _get(client, target.cls, target.name) for target in holders}
    shared = _get(client, ConfigMap, CERTS_BUNDLE, namespace)
    pairs = {name: _pair(secrets[name]) for name in roles}
    authorities = read_authorities(secrets[CERTS_CA])
    if authorities.active is None:
        # Where the CA's Secret is lost, its certificate is found beside those that it has signed.
        recovered = [issuer for name, pair in pairs.items() for issuer in _issuers(pair, secrets[name])]
        authorities = authorities.also_trusting(recovered)
    authorities = authorities.alive(now)
    trusted = authorities.trusted()
    leaves = {name: _leaf(pairs[name], roles[name], trusted) for name in roles}
    state = State(
        active=facts(authorities.active.certificate) if authorities.active is not None else None,
        next=facts(authorities.next.certificate) if authorities.next is not None else None,
        trusted=tuple(facts(certificate) for certificate in trusted),
        leaves=leaves,
        bundles={**_bundles(secrets, targets, namespace), CERTS_BUNDLE: _shared(shared, authorities)},
        next_since=authorities.next_since,
        settled_since=authorities.settled_since,
    )
    return Snapshot(secrets, targets, shared, authorities, state)


def _get(client: KubeClient, cls: type[T], name: str, namespace: str = "") -> T | None:
    try:
        return client.get(cls, name, namespace)
    except NotFound:
        return None


def _pair(secret: Secret | None) -> Pair | None:
    if secret is None:
        return None
    try:
        return load_pair(decoded(secret.data.get(TLS_CERT_FILE)), decoded(secret.data.get(TLS_KEY_FILE)))
    except ValueError:
        return None


def _issuers(pair: Pair | None, secret: Secret | None) -> list[x509.Certificate]:
    if pair is None or secret is None:
        return []
    bundle = parse(decoded(secret.data.get(TLS_CA_FILE)))
    return [authority for authority in bundle if issued_by(pair.certificate, authority)]


def _leaf(pair: Pair | None, role: Role, trusted: list[x509.Certificate]) -> Leaf | None:
    if pair is None:
        return None
    certificate = pair.certificate
    issuer = next((identify(authority) for authority in trusted if issued_by(certificate, authority)), "")
    made = certificate.not_valid_before_utc + BACKDATE
    return Leaf(issuer, made, certificate.not_valid_after_utc, says(certificate, role))


def _bundles(
    secrets: Mapping[str, Secret | None], targets: Mapping[str, Any], namespace: str
) -> dict[str, tuple[str, ...] | None]:
    """Of everybody who is there; who is missing trusts nobody and keeps nobody waiting."""
    found = {name: held(decoded(s.data.get(TLS_CA_FILE))) for name, s in secrets.items() if s is not None}
    for target in (target for target in TARGETS if target.key in targets):
        obj = targets[target.key]
        bundle = target.bundle(obj, namespace) if obj is not None else None
        if bundle is not None:
            found[target.key] = held(bundle)
    return found


def shared_data(authorities: Authorities) -> dict[str, str]:
    """What nodes are to read. A node whose certificate is of another signer asks for a new one."""
    signer = authorities.signs()
    texts = {TLS_CA_FILE: render(authorities.trusted()), TLS_SIGNER_FILE: signer.cert_pem if signer else b""}
    return {name: text.decode("ascii") for name, text in texts.items()}


def _shared(found: ConfigMap | None, authorities: Authorities) -> tuple[str, ...] | None:
    """Here, who is missing is made: nobody else would."""
    if found is None or found.data != {**found.data, **shared_data(authorities)}:
        return None
    return held(found.data[TLS_CA_FILE].encode("ascii"))
