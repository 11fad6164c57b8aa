"""Each certificate serves for what its holder does with it, as OpenSSL judges it."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from virt_controller.certificates.roles import node_role, roles
from virt_core.apis import names
from virt_core.runtime.x509 import Pair, make_authority, make_leaf

NAMESPACE = "virtpod"


@pytest.fixture
def authority() -> Pair:
    return make_authority("virtpod-ca", datetime.now(UTC), timedelta(days=1))


def context(side: int, holder: str, authority: Pair, directory: Path) -> ssl.SSLContext:
    leaf = roles(NAMESPACE).get(holder) or node_role(holder, NAMESPACE)
    pair = make_leaf(authority, leaf, datetime.now(UTC), timedelta(hours=1))
    path = directory / f"{holder}.pem"
    path.write_bytes(pair.key_pem + pair.cert_pem)
    made = ssl.SSLContext(side)
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=authority.cert_pem.decode())
    made.load_cert_chain(path)
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Raises SSLError when one side refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


def test_virt_api_and_virt_handler_believe_each_other(authority: Pair, tmp_path: Path) -> None:
    server = context(ssl.PROTOCOL_TLS_SERVER, "node1", authority, tmp_path)
    client = context(ssl.PROTOCOL_TLS_CLIENT, names.CERTS_API_CLIENT, authority, tmp_path)
    shake_hands(server, client, names.tls_name_node("node1", NAMESPACE))


def test_nodes_believe_each_other_by_name_only(authority: Pair, tmp_path: Path) -> None:
    """As the source of a migration will: it meant this target, and no other node will do."""
    target = context(ssl.PROTOCOL_TLS_SERVER, "node1", authority, tmp_path)
    source = context(ssl.PROTOCOL_TLS_CLIENT, "node2", authority, tmp_path)
    shake_hands(target, source, names.tls_name_node("node1", NAMESPACE))
    other = context(ssl.PROTOCOL_TLS_SERVER, "node3", authority, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="node1"):
        shake_hands(other, source, names.tls_name_node("node1", NAMESPACE))


def test_a_guest_that_asks_who_calls_believes_virt_handler(authority: Pair, tmp_path: Path) -> None:
    guest = context(ssl.PROTOCOL_TLS_SERVER, names.CERTS_API_SERVING, authority, tmp_path)
    client = context(ssl.PROTOCOL_TLS_CLIENT, "node1", authority, tmp_path)
    shake_hands(guest, client, names.SERVICE_API)


def test_what_only_serves_is_no_client(authority: Pair, tmp_path: Path) -> None:
    server = context(ssl.PROTOCOL_TLS_SERVER, "node1", authority, tmp_path)
    client = context(ssl.PROTOCOL_TLS_CLIENT, names.CERTS_API_SERVING, authority, tmp_path)
    with pytest.raises(ssl.SSLError, match="certificate"):
        shake_hands(server, client, names.tls_name_node("node1", NAMESPACE))
