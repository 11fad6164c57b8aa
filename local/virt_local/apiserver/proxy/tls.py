"""TLS towards other servers: what we trust and who we are."""

from __future__ import annotations

import base64
import binascii
import ssl

from virt_local.apiserver import errors


def client_context(bundle: str, insecure: bool, cert: str, key: str) -> ssl.SSLContext:
    """`bundle` is base64 PEM as API objects carry it; empty means the system's authorities."""
    try:
        pem = base64.b64decode(bundle).decode()
        context = ssl.create_default_context(cadata=pem or None)
    except (binascii.Error, ValueError, ssl.SSLError) as err:
        raise errors.unavailable(f"the CA bundle cannot be read: {err}") from err
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key)
    return context
