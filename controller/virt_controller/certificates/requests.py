"""Whether a node gets the certificate that it asks for: a request in, a node and its key or a refusal out.

Who asks is what the API server wrote into the request: the service account, and the node that its token names. A token
names the node on which its Pod runs and nobody can change that, so the virt-handler of one node cannot ask in the name
of another. What the request itself says must fit that, but is never copied: only its key is.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from virt_controller.certificates.bundles import decoded
from virt_core.apis import names
from virt_core.apis.certificates import USAGES_SERVER_CLIENT, CertificateSigningRequestSpec
from virt_core.runtime.x509 import names_of

#: A request with a P-256 key and one name has less than 1 KiB.
_MAX_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Granted:
    node: str
    key: ec.EllipticCurvePublicKey


class Refused(ValueError):
    """Why not, in one sentence."""


def judge(spec: CertificateSigningRequestSpec, namespace: str) -> Granted:
    """Raises Refused."""
    node = _requester(spec, namespace)
    if set(spec.usages) != set(USAGES_SERVER_CLIENT):
        raise Refused(f"spec.usages must be {', '.join(USAGES_SERVER_CLIENT)}")
    request = _read(spec.request)
    wanted = names.tls_name_node(node, namespace)
    if names_of(request) != {wanted}:
        asked = ", ".join(sorted(names_of(request)))[:300]
        raise Refused(f"virt-handler of node {node} may ask for {wanted} only, not for {asked or 'no name'}")
    return Granted(node, _key(request))


def _requester(spec: CertificateSigningRequestSpec, namespace: str) -> str:
    account = names.service_account_user(names.SA_HANDLER, namespace)
    if spec.username != account:
        raise Refused(f"only {account} may ask for a node's certificate, not {spec.username or 'nobody'}")
    found = spec.extra.get(names.EXTRA_NODE_NAME, [])
    if len(found) != 1 or not found[0]:
        raise Refused(f"the requester's token does not say on which node it runs ({names.EXTRA_NODE_NAME})")
    return found[0]


def _read(text: str) -> x509.CertificateSigningRequest:
    data = decoded(text)
    if len(data) > _MAX_BYTES:
        raise Refused(f"spec.request has {len(data)} bytes, the limit is {_MAX_BYTES}")
    try:
        return x509.load_pem_x509_csr(data)
    except ValueError:
        raise Refused("spec.request is no certificate request") from None


def _key(request: x509.CertificateSigningRequest) -> ec.EllipticCurvePublicKey:
    try:
        key, signed = request.public_key(), request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        raise Refused("the key of the request cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise Refused("the key of the request must be an elliptic-curve key (P-256)")
    if not signed:
        raise Refused("the request is not signed with its own key")
    return key
