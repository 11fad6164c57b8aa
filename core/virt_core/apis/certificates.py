"""CertificateSigningRequest: how a program asks for a certificate without showing its key to anybody."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import ObjectMeta

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
#: What a certificate that serves and calls is for, in the words of a request.
USAGES_SERVER_CLIENT = ("digital signature", "server auth", "client auth")


class CertificateSigningRequestSpec(Struct):
    """The request (base64 of PEM), and who made it: that part is the API server's, whatever the requester writes."""

    request: str = ""
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: list[str] = []
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class CertificateSigningRequestCondition(Struct):
    """What became of it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class CertificateSigningRequestStatus(Struct):
    """The answer (base64 of PEM)."""

    conditions: list[CertificateSigningRequestCondition] = []
    certificate: str = ""


class CertificateSigningRequest(Struct):
    """Asks a signer for a certificate."""

    api_version: str = "certificates.k8s.io/v1"
    kind: str = "CertificateSigningRequest"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CertificateSigningRequestSpec = field(default_factory=CertificateSigningRequestSpec)
    status: CertificateSigningRequestStatus = field(default_factory=CertificateSigningRequestStatus)

    def condition(self, type: str) -> CertificateSigningRequestCondition | None:
        return next((each for each in self.status.conditions if each.type == type), None)
