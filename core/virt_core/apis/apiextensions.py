"""CustomResourceDefinition and APIService: how the API grows."""

from __future__ import annotations

from typing import Any

from msgspec import field

from virt_core.apis.admission import ServiceReference, WebhookClientConfig
from virt_core.apis.base import Struct
from virt_core.apis.meta import Condition, ObjectMeta


class CustomResourceDefinitionNames(Struct):
    """What a kind is called."""

    plural: str
    kind: str
    singular: str = ""
    short_names: list[str] = []
    list_kind: str = ""
    categories: list[str] = []


class CustomResourceColumnDefinition(Struct):
    """A column of `kubectl get`."""

    name: str
    type: str
    json_path: str = field(default="", name="jsonPath")
    description: str = ""
    format: str = ""
    priority: int = 0


class CustomResourceSubresourceScale(Struct):
    """Where the scale subresource finds its numbers."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None


class CustomResourceSubresources(Struct):
    """Which subresources a kind has."""

    status: dict[str, Any] | None = None
    scale: CustomResourceSubresourceScale | None = None


class CustomResourceValidation(Struct):
    """The structural schema, as a plain document."""

    open_api_v3_schema: dict[str, Any] | None = field(default=None, name="openAPIV3Schema")


class SelectableField(Struct):
    """A field that field selectors may use."""

    json_path: str


class CustomResourceDefinitionVersion(Struct):
    """One version of a kind."""

    name: str
    served: bool
    storage: bool
    deprecated: bool = False
    deprecation_warning: str | None = None
    schema: CustomResourceValidation | None = None
    subresources: CustomResourceSubresources | None = None
    additional_printer_columns: list[CustomResourceColumnDefinition] = []
    selectable_fields: list[SelectableField] = []


class WebhookConversion(Struct):
    """A webhook that converts between versions."""

    conversion_review_versions: list[str] = []
    client_config: WebhookClientConfig | None = None


class CustomResourceConversion(Struct):
    """None or Webhook."""

    strategy: str = "None"
    webhook: WebhookConversion | None = None


class CustomResourceDefinitionSpec(Struct):
    """What a kind is."""

    group: str
    names: CustomResourceDefinitionNames
    scope: str
    versions: list[CustomResourceDefinitionVersion] = []
    conversion: CustomResourceConversion | None = None
    preserve_unknown_fields: bool = False


class CustomResourceDefinitionStatus(Struct):
    """Whether a kind is served."""

    conditions: list[Condition] = []
    accepted_names: CustomResourceDefinitionNames | None = None
    stored_versions: list[str] = []


class CustomResourceDefinition(Struct):
    """A kind that the API server did not come with."""

    spec: CustomResourceDefinitionSpec
    api_version: str = "apiextensions.k8s.io/v1"
    kind: str = "CustomResourceDefinition"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: CustomResourceDefinitionStatus | None = None


class APIServiceSpec(Struct):
    """Which group version a service answers for."""

    service: ServiceReference | None = None
    group: str = ""
    version: str = ""
    insecure_skip_tls_verify: bool = field(default=False, name="insecureSkipTLSVerify")
    ca_bundle: str | None = None
    group_priority_minimum: int = 0
    version_priority: int = 0


class APIServiceStatus(Struct):
    """Whether the service answers."""

    conditions: list[Condition] = []


class APIService(Struct):
    """A group version served by another server."""

    api_version: str = "apiregistration.k8s.io/v1"
    kind: str = "APIService"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: APIServiceSpec = field(default_factory=APIServiceSpec)
    status: APIServiceStatus = field(default_factory=APIServiceStatus)
