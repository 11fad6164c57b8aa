"""ConfigMap, Secret and ServiceAccount."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podparts import LocalObjectReference, ObjectReference


class ConfigMap(Struct):
    """Settings as text and bytes (base64)."""

    api_version: str = "v1"
    kind: str = "ConfigMap"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    immutable: bool | None = None
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class Secret(Struct):
    """Bytes (base64) that few may read."""

    api_version: str = "v1"
    kind: str = "Secret"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    immutable: bool | None = None
    data: dict[str, str] = {}
    string_data: dict[str, str] = {}
    type: str = ""


class ServiceAccount(Struct):
    """An identity for Pods."""

    api_version: str = "v1"
    kind: str = "ServiceAccount"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    secrets: list[ObjectReference] = []
    image_pull_secrets: list[LocalObjectReference] = []
    automount_service_account_token: bool | None = None
