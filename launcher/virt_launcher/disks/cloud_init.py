"""Cloud-init: which files the image of a NoCloud or ConfigDrive volume holds. Building the image is iso.py's part."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import CloudInitConfigDriveSource, CloudInitNoCloudSource
from virt_core.runtime.record import record
from virt_launcher.errors import InvalidVMIError

Source = CloudInitNoCloudSource | CloudInitConfigDriveSource
Meta = dict[str, str | dict[str, str]]
#: A device of the machine, as the guest is told of it.
Device = dict[str, str | int | list[int] | list[str]]
#: Secrets are at most 1 MiB in Kubernetes.
_SECRET_LIMIT = 1 << 20
_CONFIG = "openstack/latest"
_CONFIG_META = f"{_CONFIG}/meta_data.json"


@record(frozen=True, slots=True)
class IsoPlan:
    """An image to build: its label, its files and, for people, the field that asked for it."""

    label: str
    files: dict[str, bytes]
    field: str


def no_cloud(
    vmi: VirtualMachineInstance, source: Source, field: str, secrets: SecretDirs, keys: Sequence[str] = ()
) -> IsoPlan:
    meta: Meta = {"instance-id": instance_id(vmi), "local-hostname": hostname(vmi)}
    if keys:
        meta["public-keys"] = _numbered(keys)
    files = {"meta-data": _json(meta), "user-data": _user_data(source, field, secrets)}
    if network := _network_data(source, field, secrets):
        files["network-config"] = network
    return IsoPlan("cidata", files, field)


def config_drive(
    vmi: VirtualMachineInstance, source: Source, field: str, secrets: SecretDirs, keys: Sequence[str] = ()
) -> IsoPlan:
    name = hostname(vmi)
    meta: Meta = {
        "instance_id": f"{vmi.metadata.name}.{vmi.metadata.namespace}",
        "local_hostname": name,
        "hostname": name,
        "uuid": instance_id(vmi),
    }
    if keys:
        meta["public_keys"] = _numbered(keys)
    files = {_CONFIG_META: _json(meta), f"{_CONFIG}/user_data": _user_data(source, field, secrets)}
    if network := _network_data(source, field, secrets):
        files[f"{_CONFIG}/network_data.json"] = network
    return IsoPlan("config-2", files, field)


def with_devices(plan: IsoPlan, devices: Sequence[Device]) -> IsoPlan:
    """A config drive that tells of the devices, too."""
    if not devices:
        return plan
    meta = json.loads(plan.files[_CONFIG_META]) | {"devices": [*devices]}
    return replace(plan, files=plan.files | {_CONFIG_META: _json(meta)})


def instance_id(vmi: VirtualMachineInstance) -> str:
    """Stable for a machine: cloud-init runs again when it changes."""
    firmware = vmi.spec.domain.firmware
    return firmware.uuid if firmware is not None and firmware.uuid else vmi.metadata.uid


def hostname(vmi: VirtualMachineInstance) -> str:
    return vmi.spec.hostname or vmi.metadata.name.split(".")[0]


@record(frozen=True, slots=True)
class SecretDirs:
    """Where the Pod mounts the Secrets of one cloud-init volume."""

    user_data: Path
    network_data: Path


def _user_data(source: Source, field: str, secrets: SecretDirs) -> bytes:
    if source.secret_ref is not None:
        return _secret(secrets.user_data, ("userdata", "userData"), f"{field}.secretRef", source.secret_ref.name)
    if source.user_data_base64:
        return _base64(source.user_data_base64, f"{field}.userDataBase64")
    return source.user_data.encode()


def _network_data(source: Source, field: str, secrets: SecretDirs) -> bytes:
    reference = source.network_data_secret_ref
    if reference is not None:
        where = f"{field}.networkDataSecretRef"
        return _secret(secrets.network_data, ("networkdata", "networkData"), where, reference.name)
    if source.network_data_base64:
        return _base64(source.network_data_base64, f"{field}.networkDataBase64")
    return source.network_data.encode()


def _secret(directory: Path, keys: tuple[str, ...], field: str, name: str) -> bytes:
    for key in keys:
        try:
            with open(directory / key, "rb") as file:
                return file.read(_SECRET_LIMIT)
        except FileNotFoundError:
            continue
    raise InvalidVMIError(field, f"Secret {name!r} has no key {' or '.join(keys)}")


def _base64(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidVMIError(field, f"not valid base64: {error}") from error


def _numbered(keys: Sequence[str]) -> dict[str, str]:
    return {str(number): key for number, key in enumerate(keys)}


def _json(value: Meta) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode()
