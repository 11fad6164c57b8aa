"""Making certificates: authorities, and leaf certificates that carry one role each. Elliptic-curve keys (P-256).

Every authority has a name of its own and its key's identifier: while an old and a new one are trusted side by side, a
verifier finds the right one by these, and one that finds the wrong one refuses a good certificate.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from virt_core.runtime.certfacts import BACKDATE

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a certificate says about its holder."""

    common_name: str
    organizations: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    usage: tuple[x509.ObjectIdentifier, ...] = (CLIENT,)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key. Its text shows neither."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        return pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        return key_pem(self.key)

    def __repr__(self) -> str:
        return f"Pair({self.certificate.subject.rfc4514_string()})"


def make_authority(common_name: str, now: datetime, life: timedelta) -> Pair:
    key = new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = _builder(subject, subject, key.public_key(), now, life).add_extension(
        x509.BasicConstraints(True, 0), critical=True
    )
    builder = builder.add_extension(_key_usage(sign_certs=True), critical=True)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def make_leaf(authority: Pair, leaf: Leaf, now: datetime, life: timedelta) -> Pair:
    """Ends with its authority at the latest."""
    key = new_key()
    return Pair(sign_leaf(authority, leaf, key.public_key(), now, life), key)


def sign_leaf(
    authority: Pair, leaf: Leaf, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.Certificate:
    """For a key that somebody else has made. Ends with its authority at the latest."""
    issuer = authority.certificate
    life = min(life, issuer.not_valid_after_utc - now)
    builder = _builder(subject_of(leaf), issuer.subject, key, now, life)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_key_usage(sign_certs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(leaf.usage), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    if leaf.names:
        builder = builder.add_extension(x509.SubjectAlternativeName(_alt_names(leaf.names)), critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def make_request(key: ec.EllipticCurvePrivateKey, leaf: Leaf) -> bytes:
    """A request for a certificate that says this, as PEM; it proves that the key is there and does not show it."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject_of(leaf))
    builder = builder.add_extension(x509.SubjectAlternativeName(_alt_names(leaf.names)), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def throw_away(name: str, now: datetime) -> Pair:
    """A certificate that nobody trusts, to answer with until there is a real one."""
    authority = make_authority(f"throw-away-{secrets.token_hex(8)}", now, timedelta(days=3650))
    return make_leaf(authority, Leaf(name, names=(name,), usage=(SERVER,)), now, timedelta(days=3650))


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def load_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    """Raises ValueError for anything but an elliptic-curve key."""
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (TypeError, ValueError):
        raise ValueError("no private key can be read from it") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("it holds no elliptic-curve key")
    return key


def load_pair(cert: bytes, key: bytes) -> Pair:
    """Raises ValueError unless both can be read and belong together."""
    pair = Pair(x509.load_pem_x509_certificate(cert), load_key(key))
    if pair.certificate.public_key() != pair.key.public_key():
        raise ValueError("the key is not the certificate's")
    return pair


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (x509.ExtensionNotFound, ValueError):
        return False


def says(certificate: x509.Certificate, leaf: Leaf) -> bool:
    """Whether the certificate carries exactly this role."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    same = certificate.subject == subject_of(leaf) and set(usage) == set(leaf.usage)
    return same and names_of(certificate) == set(leaf.names)


def names_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def subject_of(leaf: Leaf) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in leaf.organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, leaf.common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _alt_names(names: Sequence[str]) -> list[x509.GeneralName]:
    return [_alt_name(name) for name in names]


def _alt_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, sign_certs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certs,
        crl_sign=sign_certs,
        encipher_only=False,
        decipher_only=False,
    )
