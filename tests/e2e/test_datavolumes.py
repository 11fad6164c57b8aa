"""Disks that come from somewhere: DataVolumes, and machines that boot from them."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.functional.importer.server import Habits, serving

from .conftest import Space
from .engine import GUEST_IMAGE, ROOT, VirtLocal, eventually, process_table
from .manifests import vmi
from .test_boot import own_address_towards
from .vms import vm

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

GUEST_DISK = ROOT / ".build" / "guest.parts" / "files" / "disk" / "disk.img"


@pytest.fixture(autouse=True)
def importer(space: Space) -> None:
    """Where somebody else fills DataVolumes, or nobody does, this is not ours to test."""
    done = space.engine.run("kubectl", "get", "crd", "datavolumes.cdi.kubevirt.io", "-o", "jsonpath={.metadata.labels}")
    if "virtpod.io/importer" not in done.stdout:
        pytest.skip("the cluster has no DataVolumes of ours")


@pytest.fixture(scope="session")
def qcow2(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    made = tmp_path_factory.mktemp("disks") / "guest.qcow2"
    subprocess.run(["qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", GUEST_DISK, made], check=True, timeout=120)
    return made.read_bytes()


@contextmanager
def served(space: Space, habits: Habits) -> Iterator[str]:
    """At an address of this machine that Pods reach."""
    addresses = space.engine.get("nodes")["items"][0]["status"]["addresses"]
    node = next(each["address"] for each in addresses if each["type"] == "InternalIP")
    with serving(habits, (own_address_towards(node), space.engine.open_port)) as url:
        yield url


def data_volume(name: str, source: dict[str, Any], size: str = "256Mi", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": name},
        "spec": {"source": source, "storage": {"resources": {"requests": {"storage": size}}}, **spec},
    }


def status(space: Space, name: str) -> Any:
    return space.engine.get("-n", space.namespace, "datavolume", name).get("status", {})


def phase(space: Space, name: str, wanted: str, *, within_s: float = 90) -> Any:
    def check() -> Any:
        found = status(space, name)
        assert found.get("phase") == wanted, found
        return found

    return eventually(check, within_s=within_s, what=f"DataVolume {name} in phase {wanted}")


def events(space: Space, name: str) -> list[str]:
    items = space.engine.get("-n", space.namespace, "events")["items"]
    return [each["message"] for each in items if each["involvedObject"].get("name") == name]


def from_volume(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """The machine boots from the DataVolume instead of from an image."""
    holder = manifest["spec"]["template"] if manifest["kind"] == "VirtualMachine" else manifest
    holder["spec"]["volumes"] = [{"name": "root", "dataVolume": {"name": name}}]
    return manifest


def boots(space: Space, name: str) -> None:
    space.ready(name)
    with space.console(name) as console:
        console.prompt()
        assert "x86_64" in console.shell("uname -m")


def test_a_vm_with_a_template_from_http_boots(space: Space, qcow2: bytes) -> None:
    """A compressed qcow2 with its checksum becomes the VM's disk; the guest boots from it."""
    manifest = from_volume(vm("web", "Always"), "web-root")
    with served(space, Habits(qcow2)) as url:
        source = {"http": {"url": url, "checksum": f"sha256:{hashlib.sha256(qcow2).hexdigest()}"}}
        template = data_volume("web-root", source)
        manifest["spec"]["dataVolumeTemplates"] = [{"metadata": template["metadata"], "spec": template["spec"]}]
        space.apply(manifest)
        found = phase(space, "web-root", "Succeeded")
    assert found["progress"] == "100.0%"
    assert {each["type"]: each["status"] for each in found["conditions"]} == {
        "Bound": "True", "Running": "False", "Ready": "True",
    }  # fmt: skip
    boots(space, "web")
    claim = space.engine.get("-n", space.namespace, "pvc", "web-root")
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "DataVolume"
    assert claim["metadata"]["annotations"]["cdi.kubevirt.io/storage.pod.phase"] == "Succeeded"
    space.kubectl("delete", "vm", "web", "--timeout=60s", timeout=90)
    space.gone("pvc")


def test_an_importer_that_is_killed_is_gone_on_with(space: Space) -> None:
    """Half of the image has come when it is killed: the next importer asks for the rest only, and the disk is whole."""
    raw = os.urandom(96 << 20)
    habits = Habits(raw, stall_after=80 << 20)
    with served(space, habits) as url:
        source = {"http": {"url": url, "checksum": f"sha256:{hashlib.sha256(raw).hexdigest()}"}}
        space.apply(data_volume("killed", source))
        eventually(habits.stalled.is_set, within_s=60, what="most of it has come")
        eventually(lambda: percent(space, "killed") > 50, within_s=30, what="progress")
        os.kill(importer_pid(space, "killed"), signal.SIGKILL)
        habits.stall_after = 0
        habits.go_on.set()
        found = phase(space, "killed", "Succeeded")
    assert found["restartCount"] == 1
    assert ("/disk", f"bytes={64 << 20}-{len(raw) - 1}") in habits.asked, habits.asked
    assert any("without a report" in each for each in events(space, "killed"))


def percent(space: Space, name: str) -> float:
    text = status(space, name).get("progress", "")
    return float(text[:-1]) if text.endswith("%") else 0.0


def importer_pid(space: Space, name: str) -> int:
    """The process with the claim of that name in its plan: the Pod's name is its host name."""
    for pid, args in process_table():
        if any(each.endswith("virt-importer") for each in args[:3]):
            host = Path(f"/proc/{pid}/environ").read_bytes()
            if f"HOSTNAME=importer-{name}".encode() in host:
                return pid
    raise LookupError(f"no importer of {name}")


def test_what_cannot_become_a_disk_is_refused_with_its_reason(space: Space, qcow2: bytes) -> None:
    """A wrong checksum, a claim that is too small: Failed, with an Event, and the machine says so."""
    with served(space, Habits(qcow2)) as url:
        space.apply(data_volume("small", {"http": {"url": url}}, size="16Mi"))
        space.apply(data_volume("wrong", {"http": {"url": url, "checksum": "md5:" + 32 * "0"}}))
        space.apply(from_volume(vmi("never"), "wrong"))
        for name, words in (("small", "has room for"), ("wrong", "the DataVolume says")):
            found = phase(space, name, "Failed")
            (running,) = [each for each in found["conditions"] if each["type"] == "Running"]
            assert words in running["message"], found
            eventually(lambda: any(words in each for each in events(space, name)), within_s=30)  # noqa: B023
    space.phase("never", "Failed")


def test_doors(space: Space) -> None:
    """What our importer does not do is refused in one sentence, with the field's path."""
    text = space.refuse(data_volume("s3", {"s3": {"url": "http://example.test/x"}}))
    assert "spec.source" in text
    assert "s3 is not supported by Virtpod's importer" in text
    assert "exactly one kind" in space.refuse(data_volume("two", {"blank": {}, "upload": {}}))
    assert "spec.source.http.url" in space.refuse(data_volume("file", {"http": {"url": "file:///etc/passwd"}}))
    text = space.refuse(data_volume("warm", {"blank": {}}, checkpoints=[{"current": "a", "previous": ""}]))
    assert "checkpoints is not supported" in text


def test_a_blank_disk_can_be_written_to(space: Space) -> None:
    space.apply(data_volume("empty", {"blank": {}}, size="32Mi"))
    phase(space, "empty", "Succeeded")
    manifest = vmi("writer")
    manifest["spec"]["volumes"].append({"name": "empty", "dataVolume": {"name": "empty"}})
    manifest["spec"]["domain"]["devices"]["disks"].append({"name": "empty", "disk": {"bus": "virtio"}})
    space.boot(manifest)
    with space.console("writer") as console:
        console.prompt()
        console.shell("echo kept | dd of=/dev/vdb bs=512 conv=sync 2>/dev/null && sync")
        assert "kept" in console.shell("dd if=/dev/vdb bs=4 count=1 2>/dev/null")


def test_an_uploaded_image_boots(space: Space, qcow2: bytes, tmp_path: Path) -> None:
    """`virtctl image-upload` with lines instead of a bar; a file that is no disk of ours is refused by its name."""
    disk = tmp_path / "mine.qcow2"
    disk.write_bytes(qcow2)
    done = space.engine.run(
        "virtctl", "-n", space.namespace, "image-upload", "dv", "mine", f"--image-path={disk}",
        "--default-instancetype=tiny", timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "completed successfully: qcow2" in done.stdout
    assert "100% of" in done.stderr
    assert "\r" not in done.stderr
    phase(space, "mine", "Succeeded")
    labels = space.engine.get("-n", space.namespace, "pvc", "mine")["metadata"]["labels"]
    assert labels["instancetype.kubevirt.io/default-instancetype"] == "tiny"
    space.apply(from_volume(vmi("uploaded"), "mine"))
    boots(space, "uploaded")


def test_an_upload_that_is_no_disk_is_refused_and_a_good_one_taken_after_it(
    space: Space, qcow2: bytes, tmp_path: Path
) -> None:
    bad, good = tmp_path / "bad.qed", tmp_path / "good.qcow2"
    bad.write_bytes(b"QED\0" + bytes(1 << 20))
    good.write_bytes(qcow2)
    upload = ("virtctl", "-n", space.namespace, "image-upload", "dv", "twice")
    done = space.engine.run(*upload, f"--image-path={bad}", "--size=256Mi", timeout=200)
    assert done.returncode != 0
    assert "it is a QED file" in done.stderr
    done = space.engine.run(*upload, f"--image-path={good}", "--no-create", timeout=200)
    assert done.returncode == 0, done.stderr


def test_a_copy_of_a_claim_and_of_an_image_boot(space: Space) -> None:
    """From an image that the node pulls, and from there to another claim, while nobody uses the first."""
    space.apply(data_volume("pulled", {"registry": {"url": f"docker://{GUEST_IMAGE}", "pullMethod": "node"}}))
    space.apply(data_volume("copy", {"pvc": {"name": "pulled", "namespace": space.namespace}}))
    phase(space, "pulled", "Succeeded")
    phase(space, "copy", "Succeeded")
    space.apply(from_volume(vmi("copied"), "copy"))
    boots(space, "copied")
    space.apply(data_volume("again", {"pvc": {"name": "copy", "namespace": space.namespace}}))
    eventually(lambda: any("used by VMI copied" in each for each in events(space, "again")), within_s=30)
    space.kubectl("delete", "vmi", "copied", "--timeout=60s", timeout=90)
    phase(space, "again", "Succeeded")


def test_virt_local_takes_a_file(space: Space, qcow2: bytes, tmp_path: Path) -> None:
    if not isinstance(space.engine, VirtLocal):
        pytest.skip("a command of virt-local")
    disk = tmp_path / "My Disk.qcow2"
    disk.write_bytes(qcow2)
    done = space.engine._local("image", "import", str(disk), "-n", space.namespace)
    assert done.returncode == 0, done.stderr
    phase(space, "my-disk", "Succeeded")
