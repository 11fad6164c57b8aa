"""Keys and certificates: three authorities with one purpose each, and leaf certificates that carry one role each.

The cluster CA signs what talks to the API server, the front-proxy CA signs the one client that may speak for users, and
the virtpod CA signs the mutual TLS between virt-api and virt-handler. A certificate of one is worth nothing to
the others.
"""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from virt_core.apis import names
from virt_core.runtime.x509 import (
    CLIENT,
    SERVER,
    Leaf,
    Pair,
    issued_by,
    key_pem,
    load_pair,
    make_authority,
    make_leaf,
    new_key,
    pem,
    says,
)

__all__ = ["CLIENT", "SERVER", "Authority", "Leaf"]

CA_LIFE = datetime.timedelta(days=3650)
LEAF_LIFE = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=60)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that lives in two files."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    path: Path

    @property
    def pem(self) -> bytes:
        return pem(self.certificate)


def ensure_authority(directory: Path, name: str, common_name: str) -> Authority:
    """Loads the authority, or makes it. A new CA would break every client, so it is never replaced."""
    cert_path, key_path = directory / f"{name}.crt", directory / f"{name}.key"
    if cert_path.exists() and key_path.exists():
        pair = _load(cert_path, key_path)
        return Authority(pair.certificate, pair.key, cert_path)
    pair = make_authority(common_name, _now(), CA_LIFE)
    write_secret(key_path, pair.key_pem)
    write_public(cert_path, pair.cert_pem)
    return Authority(pair.certificate, pair.key, cert_path)


def ensure_leaf(authority: Authority, cert_path: Path, key_path: Path, leaf: Leaf) -> None:
    """Keeps a certificate that still fits, else writes a new pair."""
    if _still_good(authority, cert_path, key_path, leaf):
        return
    pair = make_leaf(Pair(authority.certificate, authority.key), leaf, _now(), LEAF_LIFE)
    write_secret(key_path, pair.key_pem)
    write_public(cert_path, pair.cert_pem)


def ensure_tls_dir(directory: Path, authority: Authority, leaf: Leaf) -> Path:
    """A directory as the components expect it: tls.crt, tls.key and the ca.crt of their peers."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ensure_leaf(authority, directory / names.TLS_CERT_FILE, directory / names.TLS_KEY_FILE, leaf)
    write_public(directory / names.TLS_CA_FILE, authority.pem)
    return directory


def ensure_signing_key(directory: Path) -> Path:
    """The key that signs ServiceAccount tokens."""
    path = directory / "service-account.key"
    if not path.exists():
        write_secret(path, key_pem(new_key()))
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


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _load(cert_path: Path, key_path: Path) -> Pair:
    try:
        return load_pair(cert_path.read_bytes(), key_path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{key_path}: {error}; remove it to have a new one made") from error


def _still_good(authority: Authority, cert_path: Path, key_path: Path, leaf: Leaf) -> bool:
    if not (cert_path.exists() and key_path.exists()):
        return False
    try:
        certificate = _load(cert_path, key_path).certificate
    except ValueError:
        return False
    fresh = certificate.not_valid_after_utc - _now() > RENEW_BEFORE
    return fresh and issued_by(certificate, authority.certificate) and says(certificate, leaf)
