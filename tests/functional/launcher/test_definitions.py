"""The real libvirt takes every domain of the golden files, not only its schema."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.launcher.sandbox import Sandbox
from tests.unit.launcher.cases import CASES

pytestmark = pytest.mark.root
GOLDEN = Path(__file__).resolve().parents[2] / "golden/launcher"
#: What this machine's QEMU and libvirt cannot do, by the words in which they say so.
NOT_HERE = (
    "TPM version",
    "kvm",
    "does not support",
    "firmware",
    "hugepages",
    "hugetlbfs",
    "No emulator found",
    "QEMU binary",
)


@pytest.fixture(scope="module")
def libvirt_uri() -> Iterator[str]:
    sandbox = Sandbox()
    try:
        sandbox.start()
        sandbox.wait_ready()
        yield f"qemu+unix:///session?socket={sandbox.root}/libvirt/libvirt-sock"
    finally:
        sandbox.close()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.valid_here])
def test_libvirt_takes_it(libvirt_uri: str, name: str) -> None:
    virsh = ["virsh", "-c", libvirt_uri, "define", "--validate", str(GOLDEN / f"{name}.xml")]
    result = subprocess.run(virsh, capture_output=True, text=True, check=False, timeout=60)
    if result.returncode and any(words in result.stderr for words in NOT_HERE):
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stderr
    subprocess.run(["virsh", "-c", libvirt_uri, "undefine", "ns_vm1", "--nvram"], check=True, timeout=60)
