"""Which node gets which certificate: the requests of honest nodes, and every way in which one could ask for more."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_controller.certificates.controller import KEY, CertificateController
from virt_controller.certificates.model import Policy
from virt_controller.certificates.signer import NodeSigner, is_open
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.certificates import CertificateSigningRequest
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.x509 import CLIENT, SERVER, Leaf, is_authority, issued_by, make_request, names_of, new_key, says

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CA = "/api/v1/namespaces/virtpod/secrets/virtpod-ca"
HANDLER = names.service_account_user(names.SA_HANDLER)
POLICY = Policy(timedelta(hours=10), timedelta(hours=1))
USAGES = ["digital signature", "server auth", "client auth"]
NODE1 = "node1.virt-handler.virtpod.internal"


class Rig:
    def __init__(self, kube: FakeKube) -> None:
        self.kube, self.clock = kube, FakeClock()
        self.signer = NodeSigner(kube.client(), "virtpod", POLICY, self.clock)
        self.authority = CertificateController(kube.client(), "virtpod", POLICY, self.clock, serving=False)
        self.authority.reconcile(KEY)

    def ask(self, name: str = "r", *, request: bytes = b"", conditions: Any = (), **spec: Any) -> dict[str, Any]:
        """As an API server stores it: who asks is its own word."""
        text = request or make_request(new_key(), Leaf("virt-handler", names=(NODE1,)))
        whole = {
            "request": base64.b64encode(text).decode(),
            "signerName": names.SIGNER_HANDLER,
            "usages": USAGES,
            "username": HANDLER,
            "extra": {names.EXTRA_NODE_NAME: ["node1"]},
            **spec,
        }
        self.kube.put(f"{REQUESTS}/{name}", {"spec": whole, "status": {"conditions": list(conditions)}})
        with running(self.signer.informer.run):
            eventually(lambda: self.signer.informer.get(name) is not None)
        self.result = self.signer.reconcile(name)
        return self.status(name)

    def status(self, name: str = "r") -> dict[str, Any]:
        found: dict[str, Any] = self.kube.objects[f"{REQUESTS}/{name}"].get("status", {})
        return found

    def certificate(self, name: str = "r") -> x509.Certificate:
        return x509.load_pem_x509_certificate(base64.b64decode(self.status(name)["certificate"]))

    def ca(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(base64.b64decode(self.kube.objects[CA]["data"]["tls.crt"]))


@pytest.fixture
def rig() -> Iterator[Rig]:
    with fake_kube() as kube:
        yield Rig(kube)


def refusal(status: dict[str, Any], type: str = "Denied") -> str:
    assert not status.get("certificate")
    (found,) = [each for each in status["conditions"] if each["type"] == type]
    assert found["status"] == "True"
    return str(found["message"])


def test_a_node_gets_a_certificate_of_its_key_in_its_name(rig: Rig) -> None:
    key = new_key()
    status = rig.ask(request=make_request(key, Leaf("virt-handler", names=(NODE1,))))
    assert [each["type"] for each in status["conditions"]] == ["Approved"]
    found = rig.certificate()
    assert found.public_key() == key.public_key()
    assert issued_by(found, rig.ca())
    assert says(found, Leaf("virt-handler", names=(NODE1,), usage=(SERVER, CLIENT)))
    assert (found.not_valid_after_utc - rig.clock.now()).total_seconds() == pytest.approx(3600, abs=1)


def test_nothing_of_the_request_but_its_key_gets_into_the_certificate(rig: Rig) -> None:
    """It asks to be a CA, an administrator of the cluster, and for ten years."""
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
            x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes-admin"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(NODE1)]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    request = builder.sign(new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    rig.ask(request=request, expirationSeconds=10 * 365 * 86400)
    found = rig.certificate()
    assert found.subject.rfc4514_string() == "CN=virt-handler"
    assert not is_authority(found)
    assert found.not_valid_after_utc - rig.clock.now() <= timedelta(hours=1)
    assert names_of(found) == {NODE1}


@pytest.mark.parametrize(
    "asked",
    [
        ("node2.virt-handler.virtpod.internal",),
        (NODE1, "node2.virt-handler.virtpod.internal"),
        ("*.virt-handler.virtpod.internal",),
        ("virt-handler.virtpod.internal",),
        (names.TLS_NAME_API,),
        (NODE1, names.TLS_NAME_API),
        ("virt-api.virtpod.svc",),
        ("node1.virt-handler.elsewhere.internal",),
        (NODE1, "127.0.0.1"),
    ],
)
def test_a_node_gets_no_other_name(rig: Rig, asked: tuple[str, ...]) -> None:
    """A broken node asks in the name of another one, or of virt-api."""
    told = refusal(rig.ask(request=make_request(new_key(), Leaf("virt-handler", names=asked))))
    assert f"virt-handler of node node1 may ask for {NODE1} only" in told


@pytest.mark.parametrize(
    "user",
    [
        names.service_account_user(names.SA_API),
        names.service_account_user(names.SA_HANDLER, "default"),
        "system:node:node1",
        "virt-handler",
        "",
    ],
)
def test_nobody_else_gets_a_nodes_certificate(rig: Rig, user: str) -> None:
    assert refusal(rig.ask(username=user)).startswith(f"only {HANDLER} may ask for a node's certificate")


@pytest.mark.parametrize("extra", [{}, {names.EXTRA_NODE_NAME: []}, {names.EXTRA_NODE_NAME: ["node1", "node2"]}])
def test_a_token_that_names_no_node_is_not_enough(rig: Rig, extra: dict[str, list[str]]) -> None:
    """Somebody who may make tokens of the account could have one."""
    assert "does not say on which node it runs" in refusal(rig.ask(extra=extra))


def _weak() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(NODE1)]), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _stolen_key() -> bytes:
    """Another key's request with our signature: whoever does not have the key gets no certificate of it."""
    mine, theirs = new_key(), new_key()
    honest = x509.load_pem_x509_csr(make_request(mine, Leaf("virt-handler", names=(NODE1,))))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    old = mine.public_key().public_bytes(serialization.Encoding.DER, form)
    new = theirs.public_key().public_bytes(serialization.Encoding.DER, form)
    der = honest.public_bytes(serialization.Encoding.DER)
    assert old in der
    text = base64.encodebytes(der.replace(old, new))
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + text + b"-----END CERTIFICATE REQUEST-----\n"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"request": b"x"}, "is no certificate request"),
        ({"request": b"x" * 20_000}, "the limit is"),
        ({"request": _weak()}, "elliptic-curve"),
        ({"request": _stolen_key()}, "not signed with its own key"),
        ({"request": make_request(ec.generate_private_key(ec.SECP384R1()), Leaf("x", names=(NODE1,)))}, "P-256"),
        ({"usages": [*USAGES, "cert sign"]}, "spec.usages"),
        ({"usages": []}, "spec.usages"),
    ],
)
def test_what_is_no_such_request_is_refused(rig: Rig, spec: dict[str, Any], words: str) -> None:
    assert words in refusal(rig.ask(**spec))


def test_an_approval_alone_makes_no_certificate(rig: Rig) -> None:
    """Somebody has approved it by hand, or by mistake."""
    approved = {"type": "Approved", "status": "True", "reason": "kubectl", "message": ""}
    told = refusal(rig.ask(extra={names.EXTRA_NODE_NAME: ["node2"]}, conditions=[approved]), "Failed")
    assert "virt-handler of node node2 may ask for" in told
    rig.ask("good", conditions=[approved])
    assert rig.certificate("good")


def test_requests_to_other_signers_are_not_ours(rig: Rig) -> None:
    foreign = {"signerName": "kubernetes.io/kube-apiserver-client", "username": HANDLER}
    rig.kube.put(f"{REQUESTS}/foreign", {"spec": foreign})
    rig.ask()
    assert rig.certificate()
    assert rig.status("foreign") == {}
    assert not is_open(from_plain(rig.kube.objects[f"{REQUESTS}/foreign"], CertificateSigningRequest))


def test_what_is_answered_stays_as_it_is(rig: Rig) -> None:
    rig.ask()
    before = rig.kube.methods("PATCH")
    with running(rig.signer.informer.run):
        eventually(lambda: (found := rig.signer.informer.get("r")) is not None and found.status.certificate)
    assert rig.signer.reconcile("r") is None
    assert rig.kube.methods("PATCH") == before


def test_without_a_ca_a_node_waits(rig: Rig) -> None:
    rig.kube.remove(CA)
    assert rig.ask() == {"conditions": []}
    assert rig.result is not None


def test_after_a_promotion_the_new_ca_signs(rig: Rig) -> None:
    first = rig.ca()
    while rig.ca() == first:
        rig.clock.step(600)
        rig.authority.reconcile(KEY)
    rig.ask()
    assert issued_by(rig.certificate(), rig.ca())
