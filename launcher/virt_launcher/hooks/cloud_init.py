"""What sidecars make of the files of a cloud-init image, as JSON with the names that existing sidecars know."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from virt_core.apis.base import encode
from virt_core.apis.hooksidecars import PRE_CLOUD_INIT_ISO
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.disks.cloud_init import IsoPlan
from virt_launcher.errors import InvalidVMIError
from virt_launcher.hooks.sidecars import Sidecar, Sidecars, refuse
from virt_protos.hooks.v1alpha3 import callbacks_pb2 as pb

MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Source:
    """How a kind of image spells the same things."""

    name: str
    metadata_key: str
    metadata: str
    user_data: str
    network_data: str


_SOURCES = {
    "cidata": _Source("noCloud", "NoCloudMetaData", "meta-data", "user-data", "network-config"),
    "config-2": _Source(
        "configDrive",
        "ConfigDriveMetaData",
        "openstack/latest/meta_data.json",
        "openstack/latest/user_data",
        "openstack/latest/network_data.json",
    ),
}


def fill(sidecars: Sidecars, plan: IsoPlan, volume: str, vmi: VirtualMachineInstance) -> IsoPlan:
    """Raises InvalidVMIError, which names the sidecar."""
    source, machine = _SOURCES[plan.label], encode(vmi)

    def ask(sidecar: Sidecar) -> None:
        nonlocal plan
        data = _data(plan, source, volume)
        legacy = {"userData": data["UserData"], "networkData": data["NetworkData"]}
        request = pb.PreCloudInitIsoParams(vmi=machine, cloudInitData=_json(data), cloudInitNoCloudSource=_json(legacy))
        answer = sidecars.call(sidecar, PRE_CLOUD_INIT_ISO, request, pb.PreCloudInitIsoResult)
        try:
            plan = replace(plan, files=_files(answer, data, source))
        except ValueError as error:
            raise refuse(sidecar, PRE_CLOUD_INIT_ISO, f"answered with something that {error}") from error

    sidecars.ask(PRE_CLOUD_INIT_ISO, ask)
    return plan


def _data(plan: IsoPlan, source: _Source, volume: str) -> dict[str, Any]:
    try:
        return {
            "DataSource": source.name,
            "NoCloudMetaData": None,
            "ConfigDriveMetaData": None,
            source.metadata_key: json.loads(plan.files[source.metadata]),
            "UserData": plan.files[source.user_data].decode(),
            "NetworkData": plan.files.get(source.network_data, b"").decode(),
            "DevicesData": None,
            "VolumeName": volume,
        }
    except UnicodeDecodeError:
        raise InvalidVMIError(plan.field, "is not UTF-8, and a sidecar wants to read it") from None


def _files(answer: pb.PreCloudInitIsoResult, data: dict[str, Any], source: _Source) -> dict[str, bytes]:
    """Raises ValueError, whose text goes on from "something that"."""
    changed = _read(answer, data)
    metadata = changed.get(source.metadata_key)
    texts = [changed.get(key, "") for key in ("UserData", "NetworkData")]
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in texts):
        raise ValueError("lacks the metadata, or has user data that is no text")
    user, network = (text.encode() for text in texts)
    files = {source.metadata: json.dumps(metadata, indent=1, sort_keys=True).encode(), source.user_data: user}
    return files | ({source.network_data: network} if network else {})


def _read(answer: pb.PreCloudInitIsoResult, data: dict[str, Any]) -> dict[str, Any]:
    """An older sidecar only answers in the older words."""
    text = answer.cloudInitData or answer.cloudInitNoCloudSource
    if len(text) > MAX_BYTES:
        raise ValueError(f"has {len(text)} bytes; at most {MAX_BYTES} are allowed")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    if answer.cloudInitData:
        return found
    return data | {"UserData": found.get("userData", ""), "NetworkData": found.get("networkData", "")}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()
