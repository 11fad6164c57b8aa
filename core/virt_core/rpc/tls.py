"""Certificates from a directory (tls.crt, tls.key, ca.crt), read again when they change, and who the peer is.

A certificate carries exactly one role as its DNS name, e.g. `virt-api.virtpod.internal`, and a virt-handler's role is
that of its node, e.g. `node1.virt-handler.virtpod.internal`. That the peer's certificate comes from our CA is not
enough: every call checks the role.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from virt_core.apis.names import TLS_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE
from virt_core.rpc.status import permission_denied
from virt_core.runtime.keypair import EXPIRY, BadPair, check_bundle, check_pair, load_pair
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

#: How often files that change while they are read are read again.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    key: bytes = field(repr=False)
    cert: bytes
    ca: bytes = b""


class TlsFiles:
    """Thread safe. Mounted Secrets change by a renamed link, so the files are looked at, not watched.

    What is handed out always belongs together: a key that is not the certificate's is never accepted, and three files
    that change while they are read are read again. The files must be there from the start, unless they `may_come`
    later: until then `current` raises, or gives what `until_there` makes. `name` is what the metric calls the
    certificate.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        name: str = "",
        ca: bool = True,
        may_come: bool = False,
        until_there: Callable[[], TlsMaterial] | None = None,
    ) -> None:
        self._directory, self._name = Path(directory), name
        self._files = (TLS_KEY_FILE, TLS_CERT_FILE, TLS_CA_FILE)[: 3 if ca else 2]
        self._mutual = ca
        self._until_there = until_there
        self._lock = threading.Lock()
        self._stamp: tuple[object, ...] = ()
        self._material: TlsMaterial | None = None
        self._stand_in: TlsMaterial | None = None
        if not may_come:
            self.current()

    def is_there(self) -> bool:
        """Whether there has been something to read yet."""
        try:
            return self.current() is not self._stand_in
        except (OSError, BadPair):
            return False

    def current(self) -> TlsMaterial:
        """What is on disk now. While a change is half done, or the files are gone or bad, what was there before.

        Raises OSError or BadPair when nothing good has been there yet.
        """
        with self._lock:
            try:
                self._material = self._refreshed()
            except (OSError, BadPair) as error:
                if self._material is None:
                    return self._instead(error)
                log.warning("TLS files cannot be used, keeping the old ones", error=str(error))
            return self._material

    def _instead(self, error: OSError | BadPair) -> TlsMaterial:
        if self._until_there is None:
            raise error
        if self._stand_in is None:
            self._stand_in = self._until_there()
        return self._stand_in

    def _refreshed(self) -> TlsMaterial:
        stamp = self._look()
        if stamp == self._stamp and self._material is not None:
            return self._material
        material, stamp = self._read_whole(stamp)
        # Bad files are looked at once, and complained about once.
        self._stamp = stamp
        ends = check_pair(material.cert, material.key)
        if self._mutual:
            check_bundle(material.ca)
        if self._name:
            EXPIRY.set(ends.timestamp(), self._name)
        return material

    def _look(self) -> tuple[object, ...]:
        stats = [(self._directory / name).stat() for name in self._files]
        return tuple((s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size) for s in stats)

    def _read_whole(self, before: tuple[object, ...]) -> tuple[TlsMaterial, tuple[object, ...]]:
        """All files of one generation. Raises OSError."""
        for _ in range(_TRIES):
            try:
                contents = [(self._directory / name).read_bytes() for name in self._files]
            except FileNotFoundError:
                contents = []  # Swapped under our hands, unless the next look says that they are gone.
            after = self._look()
            if contents and after == before:
                return TlsMaterial(*contents), after
            before = after
        raise OSError(f"the files in {self._directory} keep changing")

    def server_credentials(self) -> grpc.ServerCredentials:
        """New connections get the newest certificate. With a CA, clients must show a certificate of it."""
        seen = self.current()

        def config(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
            return grpc.ssl_server_certificate_configuration([(material.key, material.cert)], material.ca or None)

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal seen
            material = self.current()
            if material == seen:
                return None
            seen = material
            return config(material)

        # None means "no change", which the stubs do not know.
        fetcher: Any = fetch
        return grpc.dynamic_ssl_server_credentials(config(seen), fetcher, require_client_authentication=self._mutual)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        material = self.current()
        return grpc.ssl_channel_credentials(material.ca, material.key, material.cert)

    def guest_context(self) -> ssl.SSLContext:
        """For TLS towards a guest: it may check who we are; we know it by its address, not by a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        material = self.current()
        load_pair(context, material.cert, material.key)
        return context

    def peer_context(self, *, server: bool) -> ssl.SSLContext:
        """For TLS between two of our own programs without gRPC: both sides show a certificate of our CA. As a client
        it checks the server's name; a server must look at its client's itself."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        material = self.current()
        load_pair(context, material.cert, material.key)
        context.load_verify_locations(cadata=material.ca.decode("ascii"))
        return context


def peer_names(context: grpc.ServicerContext) -> list[str]:
    """The DNS names in the peer's certificate, as checked by TLS."""
    identity: Any = context.auth_context()
    return [name.decode() for name in identity.get("x509_subject_alternative_name", [])]


def require_peer_name(context: grpc.ServicerContext, dns_name: str) -> None:
    """Raises RpcFailure unless the peer has this role and no other."""
    names = peer_names(context)
    if names != [dns_name]:
        raise permission_denied(f"this call is for {dns_name}, but the peer is {', '.join(names) or 'nobody'}")
