"""The authorities with their keys, and the Secret in which they live.

tls.crt and tls.key are those of the active authority, next.crt and next.key those of the one that comes after it, and
ca.crt holds everything that is to be trusted. Only virt-controller may read this Secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509

from virt_controller.certificates.bundles import decoded, encoded, identify, in_order, parse, render
from virt_controller.certificates.model import Forget, Make, Mark, Note, Promote, Slot, Step
from virt_core.apis.config import Secret
from virt_core.apis.names import TLS_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE
from virt_core.runtime.times import parse_rfc3339, rfc3339_micro
from virt_core.runtime.x509 import Pair, is_authority, load_pair, make_authority

NEXT_CERT_FILE, NEXT_KEY_FILE = "next.crt", "next.key"
NEXT_TRUSTED_SINCE = "virtpod.io/next-ca-trusted-since"
SETTLED_SINCE = "virtpod.io/old-ca-unused-since"


@dataclass(frozen=True, slots=True)
class Authorities:
    active: Pair | None = None
    next: Pair | None = None
    #: Old ones that are still trusted; their keys are gone.
    retired: tuple[x509.Certificate, ...] = ()
    next_since: datetime | None = None
    settled_since: datetime | None = None

    def trusted(self) -> list[x509.Certificate]:
        signing = [pair.certificate for pair in (self.active, self.next) if pair is not None]
        return in_order([*signing, *self.retired])

    def signs(self) -> Pair | None:
        """Who signs now: the active one, or the next one where the active key is lost."""
        return self.active or self.next

    def signer(self, slot: Slot) -> Pair:
        pair = self.active if slot is Slot.ACTIVE else self.next
        if pair is None:
            raise LookupError(f"there is no {slot} authority")
        return pair

    def also_trusting(self, certificates: Iterable[x509.Certificate]) -> Authorities:
        known = {identify(certificate) for certificate in self.trusted()}
        return replace(self, retired=(*self.retired, *(c for c in certificates if identify(c) not in known)))

    def alive(self, now: datetime) -> Authorities:
        """Without what has expired: nobody believes it any more."""

        def lives(certificate: x509.Certificate) -> bool:
            return now < certificate.not_valid_after_utc

        return replace(
            self,
            active=self.active if self.active is not None and lives(self.active.certificate) else None,
            next=self.next if self.next is not None and lives(self.next.certificate) else None,
            retired=tuple(old for old in self.retired if lives(old)),
        )

    def after(self, step: Step, now: datetime, life: timedelta) -> Authorities:
        """What the step makes of them."""
        match step:
            case Make(Slot.ACTIVE):
                return replace(self, active=_new(now, life))
            case Make():
                return replace(self, next=_new(now, life), next_since=None)
            case Promote():
                old = (self.active.certificate,) if self.active is not None else ()
                return Authorities(active=self.next, retired=(*self.retired, *old))
            case Forget(ids):
                kept = tuple(old for old in self.retired if identify(old) not in ids)
                return replace(self, retired=kept, settled_since=None)
            case Note(Mark.NEXT_TRUSTED):
                return replace(self, next_since=now)
            case Note():
                return replace(self, settled_since=now)
        raise ValueError(f"{step} is not about authorities")

    def data(self) -> dict[str, str]:
        """The Secret's data. Where nothing signs yet, there is nothing to write."""
        files = {TLS_CA_FILE: render(self.trusted())}
        if self.active is not None:
            files |= {TLS_CERT_FILE: self.active.cert_pem, TLS_KEY_FILE: self.active.key_pem}
        else:
            # Secrets of this type must have both.
            files |= {TLS_CERT_FILE: b"", TLS_KEY_FILE: b""}
        if self.next is not None:
            files |= {NEXT_CERT_FILE: self.next.cert_pem, NEXT_KEY_FILE: self.next.key_pem}
        return {name: encoded(content) for name, content in files.items()}

    def annotations(self) -> dict[str, str]:
        stamps = {NEXT_TRUSTED_SINCE: self.next_since, SETTLED_SINCE: self.settled_since}
        return {name: rfc3339_micro(moment) for name, moment in stamps.items() if moment is not None}


def read_authorities(secret: Secret | None) -> Authorities:
    """What of the Secret can be used; whatever is broken in it counts as missing."""
    if secret is None:
        return Authorities()
    active = _pair(secret, TLS_CERT_FILE, TLS_KEY_FILE)
    following = _pair(secret, NEXT_CERT_FILE, NEXT_KEY_FILE)
    signing = {identify(pair.certificate) for pair in (active, following) if pair is not None}
    trusted = parse(decoded(secret.data.get(TLS_CA_FILE)))
    return Authorities(
        active=active,
        next=following,
        retired=tuple(old for old in trusted if identify(old) not in signing),
        next_since=_moment(secret.metadata.annotations, NEXT_TRUSTED_SINCE),
        settled_since=_moment(secret.metadata.annotations, SETTLED_SINCE),
    )


def _new(now: datetime, life: timedelta) -> Pair:
    return make_authority(f"virtpod-ca-{secrets.token_hex(8)}", now, life)


def _pair(secret: Secret, cert: str, key: str) -> Pair | None:
    try:
        pair = load_pair(decoded(secret.data.get(cert)), decoded(secret.data.get(key)))
    except ValueError:
        return None
    return pair if is_authority(pair.certificate) else None


def _moment(annotations: Mapping[str, str], name: str) -> datetime | None:
    try:
        return parse_rfc3339(annotations[name])
    except (KeyError, ValueError):
        return None
