"""A guest with hidden memory where no processor can hide it: it waits, says so, and its keys are refused truly."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot

pytestmark = pytest.mark.e2e


def hidden(name: str) -> dict[str, Any]:
    manifest = kernel_boot(name, startStrategy="Paused")
    domain = manifest["spec"]["domain"]
    domain["firmware"]["bootloader"] = {"efi": {"secureBoot": False}}
    domain["launchSecurity"] = {"sev": {"attestation": {}}}
    return manifest


def test_it_waits_for_a_processor_that_can_and_nothing_of_it_starts(space: Space) -> None:
    nodes = space.engine.get("nodes")["items"]
    if any("kubevirt.io/sev" in node["metadata"].get("labels", {}) for node in nodes):
        pytest.skip("a node here has SEV")
    space.apply(hidden("hidden"))

    def unschedulable() -> bool:
        conditions = {each["type"]: each for each in space.vmi("hidden").get("status", {}).get("conditions", [])}
        return bool(conditions.get("PodScheduled", {}).get("reason") == "Unschedulable")

    eventually(unschedulable, within_s=60, what="no node can take it, and the VMI says so")
    place = f"/apis/subresources.kubevirt.io/v1/namespaces/{space.namespace}/virtualmachineinstances/hidden/sev"
    done = space.engine.run("kubectl", "get", "--raw", f"{place}/fetchcertchain")
    assert done.returncode != 0
    assert "is not Scheduled or Running: its phase is Scheduling" in done.stderr, done.stderr
