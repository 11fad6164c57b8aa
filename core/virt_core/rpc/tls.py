"""Certificates from a directory (tls.crt, tls.key, ca.crt), read again when they change, and who the peer is.

A certificate carries exactly one role as its DNS name, e.g. `virt-api.virtpod.internal`. That the peer's certificate
comes from our CA is not enough: every call checks the role.
"""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from virt_core.rpc.status import permission_denied
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

_NAMES = ("tls.key", "tls.crt", "ca.crt")


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    key: bytes
    cert: bytes
    ca: bytes


class TlsFiles:
    """Thread safe. Mounted Secrets change by a renamed link, so the files are looked at, not watched."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._lock = threading.Lock()
        self._stamp: tuple[object, ...] = ()
        self._material: TlsMaterial | None = None
        self.current()

    def current(self) -> TlsMaterial:
        """What is on disk now. While a change is half done, or the files are gone, what was there before."""
        with self._lock:
            try:
                stamp = self._look()
                if self._material is None or stamp != self._stamp:
                    self._material, self._stamp = self._read(), stamp
            except OSError as error:
                if self._material is None:
                    raise
                log.warning("TLS files can not be read, keeping the old ones", error=str(error))
            return self._material

    def _look(self) -> tuple[object, ...]:
        stats = [(self._directory / name).stat() for name in _NAMES]
        return tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in stats)

    def _read(self) -> TlsMaterial:
        key, cert, ca = ((self._directory / name).read_bytes() for name in _NAMES)
        return TlsMaterial(key, cert, ca)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Mutual TLS: clients must show a certificate of our CA. New connections get the newest certificate."""
        seen = self.current()

        def config(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
            return grpc.ssl_server_certificate_configuration([(material.key, material.cert)], material.ca)

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal seen
            material = self.current()
            if material == seen:
                return None
            seen = material
            return config(material)

        # None means "no change", which the stubs do not know.
        fetcher: Any = fetch
        return grpc.dynamic_ssl_server_credentials(config(seen), fetcher, require_client_authentication=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        material = self.current()
        return grpc.ssl_channel_credentials(material.ca, material.key, material.cert)

    def guest_context(self) -> ssl.SSLContext:
        """For TLS towards a guest: it may check who we are; we know it by its address, not by a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(self._directory / "tls.crt", self._directory / "tls.key")
        return context


def peer_names(context: grpc.ServicerContext) -> list[str]:
    """The DNS names in the peer's certificate, as checked by TLS."""
    identity: Any = context.auth_context()
    return [name.decode() for name in identity.get("x509_subject_alternative_name", [])]


def require_peer_name(context: grpc.ServicerContext, dns_name: str) -> None:
    """Raises RpcFailure unless the peer has this role and no other."""
    names = peer_names(context)
    if names != [dns_name]:
        raise permission_denied(f"this call is for {dns_name}, the peer is {', '.join(names) or 'nobody'}")
