"""Where security and the node proxy plug into the API server.

The core serves objects; who may ask, what webhooks say, which groups another server answers and how a stream reaches a
container are the business of `apiserver.security` and `apiserver.proxy`. They implement these protocols. The defaults
here allow everything and proxy nothing, so that the core runs and is tested by itself.

Any hook may raise `errors.ApiError` to refuse a request with exactly that answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import web

from virt_local.apiserver import errors

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class User:
    """Who asks. `extra` holds what the authenticator knows beyond names (a token's Pod, for example)."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
ADMIN = User("system:admin", ("system:masters", "system:authenticated"))


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked, in the words of authorization. `path` is set for everything, the rest for resource requests."""

    verb: str
    path: str = ""
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What a token is worth: its user and the audiences it is meant for, or why it is worth nothing."""

    user: User | None
    audiences: tuple[str, ...] = ()
    error: str = ""


class Authenticator(Protocol):
    async def authenticate(self, request: web.Request) -> User | None:
        """The request's user, or None when it shows a credential that is not valid (the answer is then 401)."""

    async def review_token(self, token: str, audiences: Sequence[str]) -> Reviewed:
        """For TokenReview."""


class Authorizer(Protocol):
    async def authorize(self, user: User, attributes: Attributes) -> Decision: ...

    async def rules(self, user: User, namespace: str) -> tuple[list[Object], list[Object]]:
        """For SelfSubjectRulesReview: resourceRules and nonResourceRules of a user in a namespace."""


@dataclass(slots=True)
class AdmissionRequest:
    """One write on its way in. `mutate` may replace `object`; warnings go back to the client as Warning headers."""

    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    group: str
    version: str
    kind: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: User
    object: Object | None
    old_object: Object | None
    options: Object
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
    #: Group and version of the object's kind, where they are not those of the resource (an Eviction of a Pod).
    kind_in: tuple[str, str] | None = None


class Admission(Protocol):
    async def mutate(self, request: AdmissionRequest) -> None:
        """May change `request.object`. Called before schema validation."""

    async def validate(self, request: AdmissionRequest) -> None:
        """May only refuse. Called last before the object is stored."""


class Aggregator(Protocol):
    def match(self, path: str) -> bool:
        """True when another server answers this path (`/apis/G/V/…` of an APIService that names a Service)."""
        ...

    async def handle(self, request: web.Request, user: User) -> web.StreamResponse: ...

    async def discovery(self) -> list[Object]:
        """The APIGroupDiscovery entries (aggregated discovery v2) of the groups that other servers answer."""

    async def swagger_paths(self) -> Object:
        """The paths that other servers answer, in the words of OpenAPI v2."""


class NodeProxy(Protocol):
    async def handle(self, request: web.Request, user: User, pod: Object, subresource: str) -> web.StreamResponse:
        """Serves pods/log, exec, attach and portforward. `pod` is the stored object."""


class TokenIssuer(Protocol):
    async def issue(self, service_account: Object, request: Object) -> Object:
        """Fills a TokenRequest: returns it with status.token and status.expirationTimestamp."""


class AllowAll:
    """Everybody is the administrator: the default of a core that runs by itself."""

    async def authenticate(self, request: web.Request) -> User | None:  # noqa: ARG002
        return ADMIN

    async def review_token(self, token: str, audiences: Sequence[str]) -> Reviewed:  # noqa: ARG002
        return Reviewed(None, error="this server has no token authenticator")

    async def authorize(self, user: User, attributes: Attributes) -> Decision:  # noqa: ARG002
        return Decision(True, "no authorizer is configured")

    async def rules(self, user: User, namespace: str) -> tuple[list[Object], list[Object]]:  # noqa: ARG002
        return [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}], [{"verbs": ["*"], "nonResourceURLs": ["*"]}]


class NoAdmission:
    async def mutate(self, request: AdmissionRequest) -> None:
        """Leaves the object as it is."""

    async def validate(self, request: AdmissionRequest) -> None:
        """Refuses nothing."""


class NoAggregation:
    def match(self, path: str) -> bool:  # noqa: ARG002
        return False

    async def handle(self, request: web.Request, user: User) -> web.StreamResponse:  # noqa: ARG002
        raise errors.path_not_found()

    async def discovery(self) -> list[Object]:
        return []

    async def swagger_paths(self) -> Object:
        return {}


class NoNodes:
    async def handle(
        self,
        request: web.Request,  # noqa: ARG002
        user: User,  # noqa: ARG002
        pod: Object,  # noqa: ARG002
        subresource: str,
    ) -> web.StreamResponse:
        raise errors.unavailable(f"this server has no connection to nodes, so it cannot serve pods/{subresource}")


class NoTokens:
    async def issue(self, service_account: Object, request: Object) -> Object:  # noqa: ARG002
        raise errors.unavailable("this server has no key to sign tokens with")


@dataclass
class Hooks:
    """Everything that plugs in, in one bag. `start` and `close` run inside the server's event loop."""

    authenticator: Authenticator = field(default_factory=AllowAll)
    authorizer: Authorizer = field(default_factory=AllowAll)
    admission: Admission = field(default_factory=NoAdmission)
    aggregator: Aggregator = field(default_factory=NoAggregation)
    node_proxy: NodeProxy = field(default_factory=NoNodes)
    token_issuer: TokenIssuer = field(default_factory=NoTokens)

    async def start(self) -> None:
        """Subclasses open connections and start tasks here."""

    async def close(self) -> None:
        """Subclasses undo `start` here."""
