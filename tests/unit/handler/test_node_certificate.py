"""When a node asks for a new certificate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from virt_core.runtime.certfacts import BACKDATE, Facts
from virt_core.runtime.keymaker import request
from virt_core.runtime.keypair import read_facts
from virt_core.runtime.x509 import Leaf, load_key, make_authority, make_leaf, names_of, pem
from virt_handler.decisions.certificate import renewal

MADE = datetime(2026, 1, 1, tzinfo=UTC)
AUTHORITY = Facts(b"a", b"a", MADE, MADE + timedelta(days=365))


def shown(issuer: bytes, life: timedelta) -> Facts:
    return Facts(issuer, b"node", MADE - BACKDATE, MADE + life)


@pytest.mark.parametrize("life", [timedelta(seconds=12), timedelta(days=7)])
def test_after_two_thirds_of_its_life(life: timedelta) -> None:
    """It begins before it was made, which counts for a short one."""
    assert renewal(shown(b"a", life), AUTHORITY) == MADE + life * 2 / 3


def test_at_once_when_another_authority_signs() -> None:
    assert renewal(shown(b"b", timedelta(days=7)), AUTHORITY) < MADE


def test_the_facts_are_those_of_the_certificate() -> None:
    """Read without `cryptography`, which virt-handler does without."""
    authority = make_authority("virtpod-ca-1", MADE, timedelta(days=1))
    made = make_leaf(authority, Leaf("virt-handler", names=("x",)), MADE, timedelta(hours=1))
    facts, signer = read_facts(pem(made.certificate)), read_facts(authority.cert_pem)
    assert (facts.begins, facts.ends) == (MADE - BACKDATE, MADE + timedelta(hours=1))
    assert facts.issuer == signer.subject == signer.issuer != facts.subject
    other = read_facts(make_authority("virtpod-ca-2", MADE, timedelta(days=1)).cert_pem)
    assert other.subject != signer.subject


def test_a_request_is_of_its_key_and_says_the_names() -> None:
    from cryptography import x509

    key, text = request("virt-handler", "node1.virt-handler.virtpod.internal")
    found = x509.load_pem_x509_csr(text)
    assert found.public_key() == load_key(key).public_key()
    assert names_of(found) == {"node1.virt-handler.virtpod.internal"}
