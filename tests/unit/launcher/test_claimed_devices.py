"""What the driver of a resource claim tells of its device, and what of it is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.cases import CASES, DEVICE_METADATA, context_of
from virt_core.apis.podparts import PodResourceClaim
from virt_launcher.convert.claimed import MAX_BYTES, claimed_device
from virt_launcher.convert.converter import convert
from virt_launcher.errors import InvalidVMIError

CLAIMS = [PodResourceClaim(name="c", resource_claim_name="claim")]


def told(root: Path, *devices: Any, name: str = "r", driver: str = "d") -> None:
    place = root / "resourceclaims/claim/r"
    place.mkdir(parents=True, exist_ok=True)
    body = {"apiVersion": "metadata.resource.k8s.io/v1", "requests": [{"name": name, "devices": list(devices)}]}
    (place / f"{driver}-metadata.json").write_text(json.dumps(body))


def device(**attributes: str) -> dict[str, Any]:
    names = {"pci": "resource.kubernetes.io/pciBusID", "mdev": "mdevUUID"}
    return {"name": "x", "attributes": {names.get(key, key): {"string": text} for key, text in attributes.items()}}


def ask(root: Path, claim: str = "c", request: str = "r") -> tuple[str, str]:
    return claimed_device("spec.gpus[0]", claim, request, CLAIMS, root)


def test_a_claim_and_a_template_are_found_at_their_places() -> None:
    """The claim of a template by its name in the Pod; a part of a GPU by its own address, not by that of the whole."""
    devices = convert(context_of(CASES["claimed-devices"])).devices.hostdevs
    assert [(each.alias, each.type) for each in devices] == [("ua-gpu-part", "mdev"), ("ua-hostdevice-card", "pci")]
    assert DEVICE_METADATA.is_dir()


def test_a_device_by_its_address(tmp_path: Path) -> None:
    told(tmp_path, device(pci="0000:01:00.0"))
    assert ask(tmp_path) == ("PCI_RESOURCE", "0000:01:00.0")


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ((), "is not of one device"),
        ((device(pci="a"), device(pci="b")), "is not of one device"),
        ((device(model="big"),), "tells neither"),
        (({"attributes": [1]},), "tells neither"),
        (({"attributes": {"mdevUUID": {"string": 7}}},), "tells neither"),
        ((7,), "is not understood"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, devices: tuple[Any, ...], why: str) -> None:
    told(tmp_path, *devices)
    with pytest.raises(InvalidVMIError, match=rf"^spec\.gpus\[0\]\.claimName: .*{why}"):
        ask(tmp_path)


def test_a_driver_that_tells_nothing_or_two_that_tell_something(tmp_path: Path) -> None:
    with pytest.raises(InvalidVMIError, match=r"^spec\.gpus\[0\]\.claimName: 0 files"):
        ask(tmp_path)
    told(tmp_path, device(pci="0000:01:00.0"))
    told(tmp_path, device(pci="0000:02:00.0"), driver="e")
    with pytest.raises(InvalidVMIError, match="2 files"):
        ask(tmp_path)


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    told(tmp_path, device(pci="0" * (2 * MAX_BYTES)))
    with pytest.raises(InvalidVMIError, match="is not understood"):
        ask(tmp_path)


@pytest.mark.parametrize(("claim", "asked"), [("c", "../.."), ("c", ""), ("c", "a/b"), ("other", "r")])
def test_a_name_leads_nowhere_else(tmp_path: Path, claim: str, asked: str) -> None:
    told(tmp_path, device(pci="0000:01:00.0"))
    with pytest.raises(InvalidVMIError):
        claimed_device("spec.gpus[0]", claim, asked, CLAIMS, tmp_path)


@pytest.mark.parametrize("name", ["../claim", "/etc", "a/../claim", ".."])
def test_nor_does_a_claims_own(tmp_path: Path, name: str) -> None:
    told(tmp_path, device(pci="0000:01:00.0"))
    with pytest.raises(InvalidVMIError, match="is not the name of a claim"):
        claimed_device("spec.gpus[0]", "c", "r", [PodResourceClaim(name="c", resource_claim_name=name)], tmp_path)
