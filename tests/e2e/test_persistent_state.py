"""What firmware and TPM store, kept over a stop in a claim of the VM. The guest writes, and the guest reads again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from virt_core.apis import names

from .conftest import Space
from .console import Console
from .engine import eventually
from .manifests import kernel_boot
from .test_lessons import inside
from .vms import Machine, vm

pytestmark = pytest.mark.e2e

KEPT = "persistent-state-for"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
VIRT_CLASS = "storageclass.kubevirt.io/is-default-virt-class"
#: An emulated machine with UEFI takes its time.
BOOT_S = 240
VARIABLE = "/sys/firmware/efi/efivars/Virtpod-7d3f2f0c-52a6-4f0f-9f3c-1d0a1c1e5a77"
#: Into a TPM and out of it, in one breath: it forgets an answer that is not fetched from where it was asked.
ASK_TPM = (
    'ask() { printf "$1" >/tmp/q; exec 3<>/dev/tpm0; dd if=/tmp/q bs=4096 >&3; dd bs=4096 count=1 <&3; exec 3>&-; }'
)
SECRET = "virtpod!"

_SESSION = b"\0\0\0\x09\x40\0\0\x09\0\0\0\0\0"
_INDEX = b"\x01\x50\0\x01"


def _command(code: int, handles: bytes, parameters: bytes) -> str:
    """A command of TPM 2.0 with an empty password, as printf understands it."""
    body = code.to_bytes(4, "big") + handles + _SESSION + parameters
    whole = b"\x80\x02" + (len(body) + 6).to_bytes(4, "big") + body
    return "".join(f"\\x{byte:02x}" for byte in whole)


#: An index of eight bytes that who knows its (empty) password may read and write.
DEFINE = _command(0x12A, b"\x40\0\0\x01", b"\0\0\0\x0e" + _INDEX + b"\0\x0b\0\x06\0\x06\0\0\0\x08")
WRITE = _command(0x137, _INDEX + _INDEX, b"\0\x08" + SECRET.encode() + b"\0\0")
READ = _command(0x14E, _INDEX + _INDEX, b"\0\x08\0\0")


@pytest.fixture(autouse=True)
def _class(space: Space) -> None:
    classes = space.engine.get("storageclass")["items"]
    if not any(each["metadata"].get("annotations", {}).get(DEFAULT_CLASS) == "true" for each in classes):
        pytest.skip("the cluster has no default StorageClass")


def keeping(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a VM or VMI, with UEFI and a TPM whose state is kept."""
    holder = manifest["spec"]["template"] if manifest["kind"] == "VirtualMachine" else manifest
    domain = holder["spec"]["domain"]
    domain["memory"] = {"guest": "256Mi"}
    domain["firmware"]["bootloader"] = {"efi": {"secureBoot": False, "persistent": True}}
    domain["devices"]["tpm"] = {"persistent": True}
    return manifest


def claims(space: Space) -> list[Any]:
    found = space.engine.get("-n", space.namespace, "pvc", "-l", KEPT)["items"]
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def guest(space: Space, name: str) -> Console:
    space.ready(name, within_s=BOOT_S)
    return space.console(name)


def prepare(console: Console) -> None:
    console.prompt(within_s=BOOT_S)
    console.shell("mount -t efivarfs efivarfs /sys/firmware/efi/efivars")
    console.shell(ASK_TPM)


def ask_tpm(console: Console, command: str) -> str:
    """The answer as hexadecimal digits."""
    seen = console.shell(f"ask '{command}' 2>/dev/null | hexdump -v -e '1/1 \"%02x\"'; echo")
    return seen.replace("\r", "").split("\n")[-2]


def stop(machine: Machine) -> None:
    machine.virtctl("stop")
    eventually(lambda: not machine.has_vmi(), within_s=60, what="no VMI")


def test_what_firmware_and_tpm_store_is_there_again_after_a_stop_and_goes_with_the_vm(space: Space) -> None:
    space.apply(keeping(vm("keeper", "Always")))
    machine = Machine(space, "keeper")
    with guest(space, "keeper") as console:
        prepare(console)
        console.shell(f"printf '\\007\\000\\000\\000{SECRET}' >{VARIABLE}")
        assert ask_tpm(console, DEFINE)[12:20] == "00000000"
        assert ask_tpm(console, WRITE)[12:20] == "00000000"
    (claim,) = claims(space)
    owner, uid = machine.get()["metadata"]["uid"], machine.uid()
    assert [ref["uid"] for ref in claim["metadata"]["ownerReferences"]] == [owner]
    assert claim["metadata"]["labels"][KEPT] == "keeper"
    assert claim["metadata"]["name"].startswith("persistent-state-for-keeper-")
    told = {each["name"]: each for each in space.vmi("keeper")["status"]["volumeStatus"]}
    info = told["persistent-state-for-this-vm"]["persistentVolumeClaimInfo"]
    assert (info["claimName"], info["volumeMode"]) == (claim["metadata"]["name"], "Filesystem")
    stop(machine)
    machine.strategy("Always")
    machine.restarted(uid)
    with guest(space, "keeper") as console:
        prepare(console)
        assert SECRET in console.shell(f"tail -c 8 {VARIABLE}; echo")
        assert SECRET.encode().hex() in ask_tpm(console, READ)
    assert [each["metadata"]["uid"] for each in claims(space)] == [claim["metadata"]["uid"]]
    space.kubectl("delete", "vm", "keeper", "--wait=false")
    eventually(lambda: not claims(space), within_s=90, what="no claim with state")


def test_the_claim_of_a_vmi_without_a_vm_is_its_own(space: Space) -> None:
    manifest = kernel_boot("alone")
    manifest["spec"]["domain"]["devices"]["tpm"] = {"persistent": True}
    manifest["spec"]["terminationGracePeriodSeconds"] = 0
    uid = space.boot(manifest)["metadata"]["uid"]
    (claim,) = claims(space)
    assert [(ref["kind"], ref["uid"]) for ref in claim["metadata"]["ownerReferences"]] == [
        ("VirtualMachineInstance", uid)
    ]
    space.kubectl("delete", "vmi", "alone", "--wait=false")
    eventually(lambda: not claims(space), within_s=90, what="no claim with state")


def test_a_link_among_the_kept_variables_is_not_followed(space: Space) -> None:
    """Whoever may mount the claim may plant one; the guest's firmware would read and write what it leads to."""
    manifest = vm("planted", "Always")
    manifest["spec"]["template"]["spec"]["domain"]["firmware"]["bootloader"] = {
        "efi": {"secureBoot": False, "persistent": True}
    }
    space.apply(manifest)
    machine = Machine(space, "planted")
    space.running("planted", within_s=BOOT_S)
    file = f"{names.PATH_KEPT_STATE}/{names.KEPT_NVRAM}/planted_VARS.fd"
    plant = f"import os; os.unlink({file!r}); os.symlink('/etc/passwd', {file!r})"
    inside(space, "planted", "python3", "-c", plant)
    stop(machine)
    machine.strategy("Once")
    failed = space.phase("planted", "Failed", within_s=90)
    assert "symbolic link" in str(failed["status"]["conditions"])


@pytest.fixture
def nobodys_class(space: Space) -> Iterator[str]:
    """A class for the state of machines, of which nobody makes volumes."""
    name = f"{space.namespace}-nobody"
    marks = {VIRT_CLASS: "true"}
    metadata = {"name": name, "annotations": marks}
    space.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": metadata,
            "provisioner": "example.com/nobody",
        }
    )
    yield name
    space.engine.kubectl("delete", "storageclass", name)


def test_a_claim_that_is_not_bound_is_the_reason_that_vmi_and_vm_give(space: Space, nobodys_class: str) -> None:
    space.apply(keeping(vm("waiting", "Always")))
    machine = Machine(space, "waiting")

    def reason(holder: Any) -> str:
        conditions = {each["type"]: each for each in holder.get("status", {}).get("conditions", [])}
        told = conditions.get("Synchronized", {})
        return str(told.get("message", "")) if told.get("reason") == "BackendStorageNotReady" else ""

    for look in (lambda: space.vmi("waiting"), machine.get):
        words = eventually(lambda look=look: reason(look()), within_s=60, what="the reason why it waits")
        assert nobodys_class in words
        assert "example.com/nobody" in words
