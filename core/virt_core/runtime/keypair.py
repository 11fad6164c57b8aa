"""A certificate and its key, as far as the standard library goes: whether they belong together, and until when.

Every server and client needs this much; the `cryptography` package, which makes certificates, costs a process 10 MiB
and belongs only to those who make them (virt_core.runtime.x509).
"""

from __future__ import annotations

import os
import re
import ssl
from datetime import UTC, datetime

from virt_core.runtime.certfacts import Facts
from virt_core.runtime.metrics import Gauge

EXPIRY = Gauge(
    "virt_certificate_expiration_timestamp_seconds",
    "When the certificate that is in use ends, as Unix time.",
    ("certificate",),
)

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18


class BadPair(ValueError):
    """The certificate cannot be read, or the key is not its key."""


def load_pair(context: ssl.SSLContext, cert_pem: bytes, key_pem: bytes) -> None:
    """OpenSSL's binding reads only files; an anonymous one keeps the key off the disk. Raises ssl.SSLError."""
    fd = os.memfd_create("key-pair", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(cert_pem.rstrip() + b"\n" + key_pem)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def check_pair(cert_pem: bytes, key_pem: bytes) -> datetime:
    """Raises BadPair unless the key is the certificate's; returns when the certificate ends."""
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert_pem, key_pem)
    except ssl.SSLError as error:
        # The reason is a code ("KEY_VALUES_MISMATCH") and carries nothing of the key.
        raise BadPair(f"the certificate and the key do not match: {error.reason or 'unreadable'}") from None
    return not_after(cert_pem)


def check_bundle(ca_pem: bytes) -> None:
    """Raises BadPair unless there is at least one certificate in it, and all of them can be read."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=ca_pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise BadPair(f"the CA bundle cannot be read: {error}") from None


def not_after(cert_pem: bytes) -> datetime:
    """The end of the first certificate. Raises BadPair."""
    return read_facts(cert_pem).ends


def read_facts(cert_pem: bytes) -> Facts:
    """Of the first certificate. Raises BadPair."""
    found = _BLOCK.search(cert_pem)
    if found is None:
        raise BadPair("there is no certificate")
    try:
        return _facts(ssl.PEM_cert_to_DER_cert(found.group().decode("ascii")))
    except (ValueError, IndexError) as error:
        raise BadPair(f"the certificate cannot be read: {error}") from None


def _facts(der: bytes) -> Facts:
    """Certificate → tbsCertificate → [version,] serial, signature, issuer, validity, subject (RFC 5280, 4.1)."""
    _, certificate, _ = _read(der)
    _, fields, _ = _read(certificate)
    tag, _, rest = _read(fields)
    for _ in range(2 if tag == _VERSION else 1):
        _, _, rest = _read(rest)
    _, issuer, rest = _read(rest)
    tag, validity, rest = _read(rest)
    if tag != _SEQUENCE:
        raise ValueError("no validity where it should be")
    _, subject, _ = _read(rest)
    first, moment, second = _read(validity)
    return Facts(issuer, subject, _moment(first, moment), _moment(*_read(second)[:2]))


def _read(data: bytes) -> tuple[int, bytes, bytes]:
    """One DER value: its tag, its content, and what comes after it."""
    tag, size, start = data[0], data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        raise ValueError("cut short")
    return tag, data[start : start + size], data[start + size :]


def _moment(tag: int, text: bytes) -> datetime:
    formats = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
    if tag not in formats:
        raise ValueError(f"a time of kind {tag:#x}")
    return datetime.strptime(text.decode("ascii"), formats[tag]).replace(tzinfo=UTC)
