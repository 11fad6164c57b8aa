"""Devices of the node that come by a resource claim: which they are, the claim's driver says in a file of the Pod.

Kubernetes describes the file as "device metadata": one directory for each request of a claim, in it one file of each
driver, in it an object for each version that the driver speaks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from virt_core.apis import names
from virt_core.apis.podparts import PodResourceClaim
from virt_launcher.errors import InvalidVMIError

_FILES = "*-metadata.json"
_GROUP = "metadata.resource.k8s.io/"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: By which variable a device plugin would have told it. A part of a GPU has an address as well: that of the whole.
_ATTRIBUTES = (
    ("mdevUUID", names.ENV_PREFIX_MDEV),
    ("resource.kubernetes.io/mdevUUID", names.ENV_PREFIX_MDEV),
    ("resource.kubernetes.io/pciBusID", names.ENV_PREFIX_PCI),
)
#: No driver needs as much for one device.
MAX_BYTES = 1 << 20


def claimed_device(
    path: str, claim: str, request: str, claims: Sequence[PodResourceClaim], root: Path
) -> tuple[str, str]:
    """Prefix of the kind and address, as of a device plugin's. Raises InvalidVMIError with the device's path."""
    found = next((each for each in claims if each.name == claim), None)
    if found is None:
        raise InvalidVMIError(f"{path}.claimName", f"there is no claim {claim!r} in spec.resourceClaims")
    if not _LABEL.fullmatch(request):
        raise InvalidVMIError(f"{path}.requestName", f"{request!r} must be a DNS label")
    own = found.resource_claim_name
    # A claim that is made for the Pod goes by its name in the Pod: its own nobody knows beforehand.
    kind, name = ("resourceclaims", own) if own else ("resourceclaimtemplates", found.name)
    if not _NAME.fullmatch(name):
        raise InvalidVMIError(f"{path}.claimName", f"{name!r} is not the name of a claim")
    files = sorted((root / kind / name / request).glob(_FILES))
    if len(files) != 1:
        why = f"{len(files)} files of drivers tell of the request {request!r} of claim {claim!r}, and one is needed"
        raise InvalidVMIError(f"{path}.claimName", why)
    return _address(_device(files[0], request, path), path)


def _device(file: Path, request: str, path: str) -> dict[str, Any]:
    try:
        with file.open("rb") as data:
            told = next(_objects(data.read(MAX_BYTES).decode()), None)
        asked = [each for each in (told or {})["requests"] if each["name"] == request]
        [device] = asked[0]["devices"]
        attributes = device["attributes"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = f"what the driver tells in {file.name} is not understood, or is not of one device: {error}"
        raise InvalidVMIError(f"{path}.claimName", why) from error
    return attributes if isinstance(attributes, dict) else {}


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Those that are of a version of ours, one after the other."""
    decoder, rest = json.JSONDecoder(), text.lstrip()
    while rest:
        value, end = decoder.raw_decode(rest)
        rest = rest[end:].lstrip()
        if isinstance(value, dict) and str(value.get("apiVersion", "")).startswith(_GROUP):
            yield value


def _address(attributes: dict[str, Any], path: str) -> tuple[str, str]:
    for name, prefix in _ATTRIBUTES:
        value = attributes.get(name)
        if isinstance(value, dict) and isinstance(value.get("string"), str):
            return prefix, value["string"]
    why = "its driver tells neither resource.kubernetes.io/pciBusID nor mdevUUID"
    raise InvalidVMIError(f"{path}.claimName", why)
