"""The types that every Kubernetes object shares: metadata, owner references, selectors, conditions, Status."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from virt_core.apis.base import Struct

#: An RFC 3339 time in UTC, as text: we compare and copy times far more often than we compute with them.
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class OwnerReference(Struct):
    """Names the object that owns this one; it is deleted with its last owner."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(Struct):
    """Which fields a writer owns (server-side apply)."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: Time | None = None
    fields_type: str = ""
    fields_v1: dict[str, Any] | None = field(default=None, name="fieldsV1")
    subresource: str = ""


class ObjectMeta(Struct):
    """Standard object's metadata."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []
    managed_fields: list[ManagedFieldsEntry] = []


class ListMeta(Struct):
    """Metadata of a list: the version it was read at and where the next page starts."""

    self_link: str = ""
    resource_version: str = ""
    continue_: str = field(default="", name="continue")
    remaining_item_count: int | None = None


class TypeMeta(Struct):
    """Only what an object is, for peeking."""

    api_version: str = ""
    kind: str = ""


class PartialObjectMetadata(Struct):
    """Any object, read for its metadata alone."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class LabelSelectorRequirement(Struct):
    """A key, an operator (In, NotIn, Exists, DoesNotExist) and its values."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Struct):
    """Selects objects by their labels. All given terms must hold; an empty selector selects everything."""

    match_labels: dict[str, str] = {}  #: Labels that must be present with exactly these values.
    match_expressions: list[LabelSelectorRequirement] = []  #: Further requirements on labels.


class Condition(Struct):
    """One observation of an object's state. Also carries the probe time that KubeVirt's conditions have."""

    type: str  #: What is observed.
    status: str  #: True, False or Unknown.
    last_probe_time: Time | None = None  #: When the condition was last checked.
    last_transition_time: Time | None = None  #: When the status last changed.
    reason: str = ""  #: A CamelCase word for the last transition's cause.
    message: str = ""  #: A sentence about the last transition.
    observed_generation: int = 0  #: The generation that the condition was derived from.


class StatusCause(Struct):
    """One reason of a refusal: the field and what is wrong with it."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Struct):
    """What a Status is about, and its causes."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] = []
    retry_after_seconds: int = 0


class Status(Struct):
    """The answer to a call that returns no object."""

    api_version: str = "v1"
    kind: str = "Status"
    metadata: ListMeta = field(default_factory=ListMeta)
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0


class Preconditions(Struct):
    """What must hold for a delete to happen."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Struct):
    """The body of a DELETE."""

    api_version: str = "v1"
    kind: str = "DeleteOptions"
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    dry_run: list[str] = []


class APIResource(Struct):
    """One resource of a discovery document."""

    name: str
    singular_name: str = ""
    namespaced: bool = False
    kind: str = ""
    verbs: list[str] = []
    short_names: list[str] = []
    categories: list[str] = []
    group: str = ""
    version: str = ""


class APIResourceList(Struct):
    """The discovery document of one group version."""

    api_version: str = "v1"
    kind: str = "APIResourceList"
    group_version: str = ""
    resources: list[APIResource] = []


class GroupVersionForDiscovery(Struct):
    """A group version as discovery names it."""

    group_version: str
    version: str


class APIGroup(Struct):
    """The discovery document of one group."""

    api_version: str = "v1"
    kind: str = "APIGroup"
    name: str = ""
    versions: list[GroupVersionForDiscovery] = []
    preferred_version: GroupVersionForDiscovery | None = None


class APIGroupList(Struct):
    """All groups."""

    api_version: str = "v1"
    kind: str = "APIGroupList"
    groups: list[APIGroup] = []
