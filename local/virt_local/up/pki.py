"""Keys and certificates: three authorities with one purpose each, and leaf certificates that carry one role each.

The cluster CA signs what talks to the API server, the front-proxy CA signs the one client that may speak for users, and
the virtpod CA signs the mutual TLS between virt-api and virt-handler. A certificate of one is worth nothing to
the others.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
LEAF_DAYS = 365
RENEW_BEFORE = datetime.timedelta(days=60)
_BACKDATE = datetime.timedelta(minutes=5)

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
class Authority:
    """A certificate authority that lives in two files."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    path: Path

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def ensure_authority(directory: Path, name: str, common_name: str) -> Authority:
    """Loads the authority, or makes it. A new CA would break every client, so it is never replaced."""
    cert_path, key_path = directory / f"{name}.crt", directory / f"{name}.key"
    if cert_path.exists() and key_path.exists():
        certificate = x509.load_pem_x509_certificate(cert_path.read_bytes())
        return Authority(certificate, _load_key(key_path), cert_path)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = _builder(subject, subject, key, CA_DAYS).add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(_key_usage(sign_certs=True), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    write_secret(key_path, _key_pem(key))
    write_public(cert_path, certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(certificate, key, cert_path)


def ensure_leaf(authority: Authority, cert_path: Path, key_path: Path, leaf: Leaf) -> None:
    """Keeps a certificate that still fits, else writes a new pair."""
    if _still_good(authority, cert_path, key_path, leaf):
        return
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject(leaf), authority.certificate.subject, key, LEAF_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_key_usage(sign_certs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(leaf.usage), critical=False)
    if leaf.names:
        builder = builder.add_extension(x509.SubjectAlternativeName(_alt_names(leaf.names)), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    write_secret(key_path, _key_pem(key))
    write_public(cert_path, certificate.public_bytes(serialization.Encoding.PEM))


def ensure_tls_dir(directory: Path, authority: Authority, leaf: Leaf) -> Path:
    """A directory as the components expect it: tls.crt, tls.key and the ca.crt of their peers."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ensure_leaf(authority, directory / "tls.crt", directory / "tls.key", leaf)
    write_public(directory / "ca.crt", authority.pem)
    return directory


def ensure_signing_key(directory: Path) -> Path:
    """The key that signs ServiceAccount tokens."""
    path = directory / "service-account.key"
    if not path.exists():
        write_secret(path, _key_pem(ec.generate_private_key(ec.SECP256R1())))
    return path


def write_secret(path: Path, data: bytes) -> None:
    _write(path, data, 0o600)


def write_public(path: Path, data: bytes) -> None:
    _write(path, data, 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        os.fchmod(descriptor, mode)
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _subject(leaf: Leaf) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in leaf.organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, leaf.common_name)])


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


def _still_good(authority: Authority, cert_path: Path, key_path: Path, leaf: Leaf) -> bool:
    if not (cert_path.exists() and key_path.exists()):
        return False
    try:
        certificate = x509.load_pem_x509_certificate(cert_path.read_bytes())
        certificate.verify_directly_issued_by(authority.certificate)
        same_key = _load_key(key_path).public_key() == certificate.public_key()
    except (ValueError, TypeError, InvalidSignature):
        return False
    fresh = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > RENEW_BEFORE
    return same_key and fresh and certificate.subject == _subject(leaf) and _names_of(certificate) == set(leaf.names)


def _names_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} holds no elliptic-curve key; remove it to have a new one made")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
