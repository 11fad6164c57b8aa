"""Reviews: who is behind a token, and may they do it?"""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import ObjectMeta, Time


class UserInfo(Struct):
    """A user as the API server knows them."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class TokenReviewSpec(Struct):
    """The token."""

    token: str = ""
    audiences: list[str] = []


class TokenReviewStatus(Struct):
    """Whose it is."""

    authenticated: bool = False
    user: UserInfo | None = None
    audiences: list[str] = []
    error: str = ""


class TokenReview(Struct):
    """Asks whose token this is."""

    api_version: str = "authentication.k8s.io/v1"
    kind: str = "TokenReview"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: TokenReviewSpec = field(default_factory=TokenReviewSpec)
    status: TokenReviewStatus = field(default_factory=TokenReviewStatus)


class BoundObjectReference(Struct):
    """The object that a token dies with."""

    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class TokenRequestSpec(Struct):
    """What token is wanted."""

    audiences: list[str] = []
    expiration_seconds: int | None = None
    bound_object_ref: BoundObjectReference | None = None


class TokenRequestStatus(Struct):
    """The token."""

    token: str = ""
    expiration_timestamp: Time | None = None


class TokenRequest(Struct):
    """Asks for a token of a service account."""

    api_version: str = "authentication.k8s.io/v1"
    kind: str = "TokenRequest"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: TokenRequestSpec = field(default_factory=TokenRequestSpec)
    status: TokenRequestStatus = field(default_factory=TokenRequestStatus)


class ResourceAttributes(Struct):
    """A request on a resource."""

    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class NonResourceAttributes(Struct):
    """A request on a path."""

    path: str = ""
    verb: str = ""


class SubjectAccessReviewSpec(Struct):
    """Who wants to do what."""

    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None
    user: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    uid: str = ""


class SubjectAccessReviewStatus(Struct):
    """The verdict."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class SubjectAccessReview(Struct):
    """Asks whether somebody may do something."""

    api_version: str = "authorization.k8s.io/v1"
    kind: str = "SubjectAccessReview"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: SubjectAccessReviewSpec = field(default_factory=SubjectAccessReviewSpec)
    status: SubjectAccessReviewStatus = field(default_factory=SubjectAccessReviewStatus)


class SelfSubjectAccessReview(Struct):
    """Asks whether the caller may do something."""

    api_version: str = "authorization.k8s.io/v1"
    kind: str = "SelfSubjectAccessReview"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: SubjectAccessReviewSpec = field(default_factory=SubjectAccessReviewSpec)
    status: SubjectAccessReviewStatus = field(default_factory=SubjectAccessReviewStatus)
