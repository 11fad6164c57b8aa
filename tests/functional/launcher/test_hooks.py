"""Hook sidecars as real processes: asked in their order, bounded, and every failure says whose it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.functional.launcher import somesidecar
from tests.functional.launcher.sandbox import LAUNCHER_UID, Sandbox, eventually
from tests.functional.launcher.vmis import request, vmi, with_volume
from tests.unit.launcher.cases import Case, context_of, vmi_of
from virt_launcher.convert.converter import convert
from virt_launcher.disks.cloud_init import IsoPlan
from virt_launcher.domain.domain import from_xml, to_xml
from virt_launcher.errors import InvalidVMIError
from virt_launcher.hooks import cloud_init, define
from virt_launcher.hooks.sidecars import Sidecars
from virt_launcher.settings import Paths, Settings
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

#: Longer than any answer takes here, shorter than a test may take.
SOON_S = 5.0
XML = to_xml(convert(context_of(Case())))
VMI = vmi_of(Case())
Run = Callable[..., Path]


@pytest.fixture
def place() -> Iterator[Path]:
    """Short: sockets have 107 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="hooks-", dir="/tmp"))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def run(place: Path) -> Iterator[Run]:
    """Starts a sidecar as the next one of the Pod."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*command: str, env: dict[str, str] | None = None) -> Path:
        sockets = place / f"hook-sidecar-{len(processes)}"
        sockets.mkdir(mode=0o777)
        sockets.chmod(0o777)
        words = [word.replace("SOCKETS", str(sockets)) for word in command]
        everything = {**os.environ, "HOOK_SOCKETS": str(sockets), "PYTHONPATH": os.getcwd(), **(env or {})}
        processes.append(subprocess.Popen([sys.executable, *words], env=everything))
        return sockets

    yield start
    for process in processes:
        process.kill()
        process.wait(10)


def some(run: Run, behaviour: str, priority: int = 0) -> Path:
    return run(str(Path(somesidecar.__file__)), behaviour, "SOCKETS/some.sock", str(priority))


def met(place: Path, count: int = 1, meet_s: float = 20.0, call_s: float = 20.0) -> Sidecars:
    paths = Paths(hooks=place)
    sidecars = Sidecars(Settings(paths=paths, hook_sidecars=count), meet_s=meet_s, call_s=call_s)
    sidecars.begin()
    return sidecars


def script(place: Path, name: str, text: str) -> dict[str, str]:
    directory = place / "scripts"
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!{sys.executable}\nimport json, sys\nargs = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n{text}\n")
    path.chmod(0o755)
    return {"HOOK_SCRIPTS": str(directory)}


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1alpha3"])
def test_a_script_changes_the_machine(place: Path, run: Run, version: str) -> None:
    """By the shim, in every version of the protocol."""
    env = script(
        place,
        "onDefineDomain",
        "name = json.loads(args['--vmi'])['metadata']['name']\n"
        "print(args['--domain'].replace('<memory ', f'<title>made for {name}</title><memory ', 1))",
    )
    run("-m", "virt_launcher.hooks.shim", "--version", version, env=env)
    assert "<title>made for vm1</title>" in define.define(met(place), XML, VMI)


def test_a_script_changes_the_cloud_init_image(place: Path, run: Run) -> None:
    env = script(
        place,
        "preCloudInitIso",
        "data = json.loads(args['--cloud-init'])\n"
        "data['UserData'] += '\\nruncmd: [touch /run/hooked]'\n"
        "data['NoCloudMetaData']['local-hostname'] = data['VolumeName']\nprint(json.dumps(data))",
    )
    run("-m", "virt_launcher.hooks.shim", "--version", "v1alpha2", env=env)
    files = {"meta-data": b'{"instance-id": "i", "local-hostname": "h"}', "user-data": b"#cloud-config"}
    plan = cloud_init.fill(met(place), IsoPlan("cidata", files, "spec.volumes[0]"), "seed", VMI)
    assert plan.files["user-data"] == b"#cloud-config\nruncmd: [touch /run/hooked]"
    assert json.loads(plan.files["meta-data"]) == {"instance-id": "i", "local-hostname": "seed"}
    assert "network-config" not in plan.files


def test_a_script_that_fails_is_heard(place: Path, run: Run) -> None:
    env = script(place, "onDefineDomain", "sys.exit('no such card here')")
    run("-m", "virt_launcher.hooks.shim", env=env)
    with pytest.raises(InvalidVMIError, match=r"hook-sidecar-0 \('shim'\).*exited with code 1: no such card here"):
        define.define(met(place), XML, VMI)


def test_the_shim_ends_when_it_is_told_to(place: Path, run: Run) -> None:
    sockets = run("-m", "virt_launcher.hooks.shim", env=script(place, "onDefineDomain", ""))
    met(place).dismiss()
    eventually(lambda: not list(sockets.iterdir()))


def test_the_higher_priority_goes_first_and_then_the_name(place: Path, run: Run) -> None:
    for behaviour, priority in (("add:c", 0), ("add:b", 0), ("add:z", 7)):
        some(run, behaviour, priority)
    assert "<title>zbc</title>" in define.define(met(place, 3), XML, VMI)


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("binary", "is not UTF-8"),
        ("text", "is not the XML of a domain"),
        ("huge", "answered more than may be"),
        ("fat", r"has 2097\d+ bytes; at most 1048576 are allowed"),
        ("other", "changes who the machine is: name is 'ns_vm2'"),
        ("entities", "declares a document type"),
        ("sulky", "failed: 'I will not'"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused(place: Path, run: Run, behaviour: str, why: str) -> None:
    some(run, behaviour)
    with pytest.raises(InvalidVMIError, match=rf"hookSidecars\]: the sidecar hook-sidecar-0 \('{behaviour}'\).*{why}"):
        define.define(met(place), XML, VMI)


def test_a_sidecar_that_never_answers_is_given_up(place: Path, run: Run) -> None:
    some(run, "never")
    with pytest.raises(InvalidVMIError, match=r"'never'.*did not answer in time"):
        define.define(met(place, call_s=1.0), XML, VMI)


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [("silent", "does not say what it is"), ("garbage", "does not say what it is"), ("stranger", "speaks 'v9'")],
)
def test_a_sidecar_that_is_none_is_given_up(place: Path, run: Run, behaviour: str, why: str) -> None:
    some(run, behaviour)
    with pytest.raises(InvalidVMIError, match=f"hook-sidecar-0 {why}"):
        met(place, meet_s=SOON_S)


def test_a_link_is_not_followed(place: Path, run: Run) -> None:
    """It could lead to any socket of the launcher's."""
    elsewhere = some(run, "add:x")
    met(place)
    (place / "hook-sidecar-1").mkdir()
    (place / "hook-sidecar-1" / "link.sock").symlink_to(elsewhere / "some.sock")
    with pytest.raises(InvalidVMIError, match="hook-sidecar-1 has no socket"):
        met(place, 2, meet_s=1.0)


def test_who_the_machine_is_comes_back_where_a_sidecar_dropped_it(place: Path, run: Run) -> None:
    some(run, "bare")
    made, ours = from_xml(define.define(met(place), XML, VMI)), from_xml(XML)
    assert (made.name, made.uuid, made.vmi_uid) == (ours.name, ours.uuid, ours.vmi_uid)


# -- a whole launcher --------------------------------------------------------------------------------------------------


@pytest.fixture
def launcher(box: Sandbox, place: Path) -> Sandbox:
    box.serve_notify()
    box.start("--hook-sidecars", "1", "--hooks-dir", str(place))
    box.wait_ready()
    return box


def virsh(box: Sandbox, *words: str) -> str:
    uri = f"qemu+unix:///session?socket={box.root}/libvirt/libvirt-sock"
    return subprocess.run(["virsh", "-c", uri, *words], capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_machine_that_runs_is_the_sidecars(
    launcher: Sandbox, run: Run, capability_cache: list[pb.CacheFile]
) -> None:
    sockets = some(run, "add:hooked")
    opened(sockets)
    launcher.stub.SyncVMI(request(vmi(), capability_cache), timeout=60)
    assert "<title>hooked</title>" in virsh(launcher, "dumpxml", "ns_vm1")
    launcher.stub.Kill(pb.KillRequest(), timeout=30)


def test_what_libvirt_refuses_is_the_reason(launcher: Sandbox, run: Run, capability_cache: list[pb.CacheFile]) -> None:
    opened(some(run, "broken"))
    with pytest.raises(grpc.RpcError) as call:
        launcher.stub.SyncVMI(request(vmi(), capability_cache), timeout=60)
    error: Any = call.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "libvirt refuses what hook sidecars made of the domain" in error.details()
    assert virsh(launcher, "list", "--all", "--name").strip() == ""


def opened(sockets: Path) -> None:
    """The sidecar runs as root here, the launcher as its own user: a Pod has one user."""
    (found,) = eventually(lambda: list(sockets.iterdir()))
    os.chown(found, LAUNCHER_UID, LAUNCHER_UID)


def test_the_image_for_cloud_init_is_the_sidecars(
    launcher: Sandbox, run: Run, place: Path, capability_cache: list[pb.CacheFile]
) -> None:
    text = "data = json.loads(args['--cloud-init'])\ndata['UserData'] += 'hooked'\nprint(json.dumps(data))"
    opened(run("-m", "virt_launcher.hooks.shim", env=script(place, "preCloudInitIso", text)))
    body = with_volume({"cloudInitNoCloud": {"userData": "#cloud-config\n# "}})
    launcher.stub.SyncVMI(request(body, capability_cache), timeout=60)
    image = (launcher.root / "ephemeral/cloud-init-data/root.iso").read_bytes()
    assert b"#cloud-config\n# hooked" in image
    launcher.stub.Kill(pb.KillRequest(), timeout=30)
