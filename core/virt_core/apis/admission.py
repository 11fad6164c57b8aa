"""AdmissionReview and the webhook configurations."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, field

from virt_core.apis.auth import UserInfo
from virt_core.apis.base import Struct
from virt_core.apis.meta import LabelSelector, ObjectMeta, Status


class GroupVersionKind(Struct):
    """A kind."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(Struct):
    """A resource."""

    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(Struct):
    """The request that shall be admitted. The objects stay undecoded until somebody needs them."""

    uid: str
    kind: GroupVersionKind = field(default_factory=GroupVersionKind)
    resource: GroupVersionResource = field(default_factory=GroupVersionResource)
    sub_resource: str = ""
    request_kind: GroupVersionKind | None = None
    request_resource: GroupVersionResource | None = None
    request_sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = field(default_factory=UserInfo)
    object: Raw = field(default_factory=Raw)
    old_object: Raw = field(default_factory=Raw)
    dry_run: bool | None = None
    options: Raw = field(default_factory=Raw)


class AdmissionResponse(Struct):
    """The verdict; `patch` is a base64 JSON patch."""

    uid: str
    allowed: bool
    status: Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    audit_annotations: dict[str, str] = {}
    warnings: list[str] = []


class AdmissionReview(Struct):
    """Request in, response out."""

    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"
    request: AdmissionRequest | None = None
    response: AdmissionResponse | None = None


class ServiceReference(Struct):
    """A path of a service."""

    namespace: str
    name: str
    path: str | None = None
    port: int | None = None


class WebhookClientConfig(Struct):
    """Where a webhook is, by service or URL."""

    url: str | None = None
    service: ServiceReference | None = None
    ca_bundle: str | None = None


class RuleWithOperations(Struct):
    """Which requests a webhook wants."""

    operations: list[str] = []
    api_groups: list[str] = []
    api_versions: list[str] = []
    resources: list[str] = []
    scope: str | None = None


class MatchCondition(Struct):
    """A CEL filter."""

    name: str
    expression: str


class ValidatingWebhook(Struct):
    """A webhook that says yes or no."""

    name: str
    client_config: WebhookClientConfig
    rules: list[RuleWithOperations] = []
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] = []
    match_conditions: list[MatchCondition] = []


class MutatingWebhook(Struct):
    """A webhook that may change the object."""

    name: str
    client_config: WebhookClientConfig
    rules: list[RuleWithOperations] = []
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] = []
    reinvocation_policy: str | None = None
    match_conditions: list[MatchCondition] = []


class ValidatingWebhookConfiguration(Struct):
    """Webhooks that say yes or no."""

    api_version: str = "admissionregistration.k8s.io/v1"
    kind: str = "ValidatingWebhookConfiguration"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    webhooks: list[ValidatingWebhook] = []


class MutatingWebhookConfiguration(Struct):
    """Webhooks that may change the object."""

    api_version: str = "admissionregistration.k8s.io/v1"
    kind: str = "MutatingWebhookConfiguration"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    webhooks: list[MutatingWebhook] = []


#: A plain JSON object, for those who work on the document instead of a struct.
Document = dict[str, Any]
