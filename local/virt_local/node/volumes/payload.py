"""The files of configMap, secret, downwardAPI and projected volumes, collected from the objects they come from."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from virt_core.apis.auth import BoundObjectReference, TokenRequestSpec
from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.podparts import DownwardAPIVolumeFile
from virt_core.apis.pods import Pod
from virt_core.apis.podvolumes import KeyToPath, ServiceAccountTokenProjection, Volume, VolumeProjection
from virt_core.runtime.times import parse_rfc3339
from virt_local.node.oci.context import ContainerConfigError
from virt_local.node.oci.downward import DownwardFacts, pod_field, resource_field
from virt_local.node.volumes.base import ObjectSource, VolumeError

DEFAULT_MODE = 0o644
DEFAULT_TOKEN_SECONDS = 3600
_REFRESH_FRACTION = 0.8


@dataclass(frozen=True)
class File:
    data: bytes
    mode: int


@dataclass(frozen=True)
class Payload:
    """The files by their path, and when a token among them must be renewed."""

    files: dict[str, File]
    renew_at: datetime | None = None


class Collector:
    def __init__(self, pod: Pod, source: ObjectSource, facts: DownwardFacts, now: datetime) -> None:
        self._pod = pod
        self._source = source
        self._facts = facts
        self._now = now
        self._files: dict[str, File] = {}
        self._renew_at: datetime | None = None

    def collect(self, volume: Volume) -> Payload | None:
        """None when the volume is of another kind."""
        if (config := volume.config_map) is not None:
            mode = _mode(config.default_mode)
            self._config_map(config.name, config.items, mode, optional=config.optional)
        elif (secret := volume.secret) is not None:
            self._secret(secret.secret_name, secret.items, _mode(secret.default_mode), optional=secret.optional)
        elif (downward := volume.downward_api) is not None:
            self._downward(downward.items, _mode(downward.default_mode))
        elif (projected := volume.projected) is not None:
            for part in projected.sources:
                self._projection(part, _mode(projected.default_mode))
        else:
            return None
        return Payload(self._files, self._renew_at)

    def _projection(self, part: VolumeProjection, mode: int) -> None:
        if part.config_map is not None:
            self._config_map(part.config_map.name, part.config_map.items, mode, optional=part.config_map.optional)
        if part.secret is not None:
            self._secret(part.secret.name, part.secret.items, mode, optional=part.secret.optional)
        if part.downward_api is not None:
            self._downward(part.downward_api.items, mode)
        if part.service_account_token is not None:
            self._token(part.service_account_token, mode)

    def _config_map(self, name: str, items: list[KeyToPath], mode: int, *, optional: bool | None) -> None:
        found = self._source.config_map(self._pod.metadata.namespace, name)
        data = _config_data(found) if found is not None else None
        self._keys("ConfigMap", name, data, items, mode, optional=optional)

    def _secret(self, name: str, items: list[KeyToPath], mode: int, *, optional: bool | None) -> None:
        found = self._source.secret(self._pod.metadata.namespace, name)
        data = _secret_data(found) if found is not None else None
        self._keys("Secret", name, data, items, mode, optional=optional)

    def _keys(
        self,
        kind: str,
        name: str,
        data: dict[str, bytes] | None,
        items: list[KeyToPath],
        mode: int,
        *,
        optional: bool | None,
    ) -> None:
        where = f"{kind} {self._pod.metadata.namespace}/{name}"
        if data is None:
            if not optional:
                raise VolumeError(f"there is no {where}")
            return
        wanted: Iterable[KeyToPath] = items or [KeyToPath(key=key, path=key) for key in data]
        for item in wanted:
            if item.key in data:
                self._files[_path(item.path)] = File(data[item.key], mode if item.mode is None else item.mode)
            elif not optional:
                raise VolumeError(f"{where} has no key {item.key!r}")

    def _downward(self, items: list[DownwardAPIVolumeFile], mode: int) -> None:
        for item in items:
            try:
                text = self._downward_value(item)
            except ContainerConfigError as err:
                raise VolumeError(str(err)) from err
            self._files[_path(item.path)] = File(text.encode(), mode if item.mode is None else item.mode)

    def _downward_value(self, item: DownwardAPIVolumeFile) -> str:
        if item.field_ref is not None:
            return pod_field(self._pod, item.field_ref.field_path, self._facts)
        if item.resource_field_ref is not None:
            return resource_field(self._pod, self._pod.spec.containers[0], item.resource_field_ref, self._facts)
        return ""

    def _token(self, projection: ServiceAccountTokenProjection, mode: int) -> None:
        pod = self._pod
        request = TokenRequestSpec(
            audiences=[projection.audience] if projection.audience else [],
            expiration_seconds=projection.expiration_seconds or DEFAULT_TOKEN_SECONDS,
            bound_object_ref=BoundObjectReference(
                kind="Pod", api_version="v1", name=pod.metadata.name, uid=pod.metadata.uid
            ),
        )
        account = pod.spec.service_account_name or "default"
        status = self._source.token(pod.metadata.namespace, account, request)
        self._files[_path(projection.path)] = File(status.token.encode(), mode)
        if status.expiration_timestamp:
            life = parse_rfc3339(status.expiration_timestamp) - self._now
            renew_at = self._now + life * _REFRESH_FRACTION
            self._renew_at = min(renew_at, self._renew_at or renew_at)


def _mode(value: int | None) -> int:
    return DEFAULT_MODE if value is None else value


def _path(path: str) -> str:
    """Set by whoever may make Pods, so it must stay in the volume; `..data` and its kin are the writer's own."""
    parts = path.split("/")
    if path.startswith("/") or not all(parts) or any(part == "." for part in parts) or parts[0].startswith(".."):
        raise VolumeError(f"{path!r} is not a path inside a volume")
    if ".." in parts:
        raise VolumeError(f"{path!r} leads out of its volume")
    return path


def _config_data(found: ConfigMap) -> dict[str, bytes]:
    data = {key: value.encode() for key, value in found.data.items()}
    return data | {key: base64.b64decode(value) for key, value in found.binary_data.items()}


def _secret_data(found: Secret) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in found.data.items()}
