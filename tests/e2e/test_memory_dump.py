"""The memory of a running guest in a claim, from `virtctl memory-dump get` until the claim is let go."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path
from typing import Any

import pytest
from framework.elfcore import VGA_WINDOW, read_core

from .conftest import Space
from .engine import eventually
from .test_hotplug_disks import claim, start, storage  # noqa: F401
from .vms import conditions

pytestmark = pytest.mark.e2e

MEMORY = 128 << 20


def request(space: Space, name: str) -> dict[str, Any]:
    return dict(space.engine.get("-n", space.namespace, "vm", name)["status"].get("memoryDumpRequest") or {})


def reaches(space: Space, name: str, phase: str) -> dict[str, Any]:
    try:
        eventually(lambda: request(space, name).get("phase") == phase, within_s=120, what=f"the dump is {phase}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {request(space, name)} {space.vmi(name)['status']}") from None
    return request(space, name)


def directory(space: Space, name: str) -> Path:
    """Where the claim's files are on this machine."""
    volume = space.engine.get("-n", space.namespace, "pvc", name)["spec"]["volumeName"]
    spec = space.engine.get("pv", volume)["spec"]
    path = Path((spec.get("hostPath") or spec.get("local") or {}).get("path", "/nonexistent"))
    if not path.is_dir():
        pytest.skip("the claims of this cluster are not on this machine")
    return path


def test_a_dump_of_the_running_guest(storage: Space, tmp_path: Path) -> None:  # noqa: F811
    space = storage
    start(space, "mind")
    space.virtctl("memory-dump", "get", "mind", "--claim-name", "thoughts", "--create-claim")
    done = reaches(space, "mind", "Completed")
    assert done["fileName"].startswith("mind-thoughts-")
    assert done["startTimestamp"] <= done["endTimestamp"]
    core = read_core(directory(space, "thoughts") / done["fileName"])
    assert (core.machine, core.lacks(MEMORY)) == ("x86_64", VGA_WINDOW)
    assert {"CORE", "QEMU"} <= set(core.notes)
    # The claim stays with the VM, and has left the machine, which goes on.
    assert "thoughts" not in {v["name"] for v in space.vmi("mind")["spec"]["volumes"]}
    assert conditions(space.vmi("mind")["status"])["Ready"] == "True"
    noted = space.engine.get("-n", space.namespace, "pvc", "thoughts")["metadata"]["annotations"]
    assert noted["kubevirt.io/memory-dump"] == done["fileName"]
    # Again, into the same claim: one file is left.
    space.virtctl("memory-dump", "get", "mind")
    eventually(lambda: request(space, "mind").get("fileName") != done["fileName"], within_s=30)
    again = reaches(space, "mind", "Completed")
    assert [path.name for path in directory(space, "thoughts").iterdir()] == [again["fileName"]]
    packed = tmp_path / "dump.tar.gz"
    space.virtctl("memory-dump", "download", "mind", "--output", str(packed), timeout=180)
    with tarfile.open(packed) as archive:
        assert {each.name for each in archive.getmembers() if each.isfile()} == {f"./{again['fileName']}"}
        copied = archive.extractfile(f"./{again['fileName']}")
        assert copied is not None
        written = (directory(space, "thoughts") / again["fileName"]).read_bytes()
        assert hashlib.sha256(copied.read()).digest() == hashlib.sha256(written).digest()
    assert space.kubectl("get", "vmexport", "-o", "name") == ""
    refused = space.engine.run("virtctl", "-n", space.namespace, "memory-dump", "get", "mind", "--claim-name", "other")
    assert "thoughts" in refused.stderr
    space.virtctl("memory-dump", "remove", "mind")
    eventually(lambda: not request(space, "mind"), within_s=60, what="the claim is let go")
    template = space.engine.get("-n", space.namespace, "vm", "mind")["spec"]["template"]["spec"]
    assert "thoughts" not in {v["name"] for v in template["volumes"]}


def test_a_claim_that_is_too_small_is_refused(storage: Space) -> None:  # noqa: F811
    space = storage
    start(space, "big")
    claim(space, "small", "64Mi")
    refused = space.engine.run("virtctl", "-n", space.namespace, "memory-dump", "get", "big", "--claim-name", "small")
    assert "the dump needs" in refused.stderr
    download = space.engine.run("virtctl", "-n", space.namespace, "memory-dump", "download", "big", "--output", "-")
    assert "has no memory dump" in download.stderr
