"""CA certificates in a row, as text: how they are written, read back and told apart."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from virt_controller.certificates.model import Authority
from virt_core.runtime.certfacts import BACKDATE
from virt_core.runtime.x509 import is_authority, pem


def identify(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()


def facts(certificate: x509.Certificate) -> Authority:
    made = certificate.not_valid_before_utc + BACKDATE
    return Authority(identify(certificate), made, certificate.not_valid_after_utc)


def in_order(certificates: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    """The oldest first and each one once: so a promotion does not change the bundle."""
    unique = {identify(certificate): certificate for certificate in certificates}
    return sorted(unique.values(), key=lambda c: (c.not_valid_before_utc, c.not_valid_after_utc, identify(c)))


def render(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(pem(certificate) for certificate in certificates)


def parse(text: bytes) -> list[x509.Certificate]:
    """The CA certificates in it; none when it cannot be read."""
    try:
        return [found for found in x509.load_pem_x509_certificates(text) if is_authority(found)]
    except ValueError:
        return []


def held(text: bytes) -> tuple[str, ...] | None:
    """Which authorities a holder trusts. None: not exactly as we would have written it."""
    certificates = parse(text)
    return tuple(identify(c) for c in certificates) if certificates and render(certificates) == text else None


def decoded(text: str | None) -> bytes:
    """A base64 field of an API object; empty when it is missing or no base64."""
    try:
        return base64.b64decode(text or "", validate=True)
    except binascii.Error:
        return b""


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
