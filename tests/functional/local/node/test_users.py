"""Pods with users of their own: on the node they are nobody, and what is mounted into them is still theirs."""

from __future__ import annotations

import base64
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.framework.stranger import everything_below, opens
from tests.framework.waiting import eventually
from unit.local.node.layouts import LayoutBuilder, directory, entry

from virt_core.apis.config import Secret
from virt_local.node import devices, kernel
from virt_local.node.images.host import HOST_IMAGE
from virt_local.node.images.root import ROOTS
from virt_local.node.users import FIRST, SIZE, TAKEN

from .support import Node, shell

pytestmark = pytest.mark.root

QEMU = 107
SECURITY = {"runAsUser": QEMU, "runAsGroup": QEMU, "fsGroup": QEMU}


def run(node: Node, script: str, volumes: dict[str, Any], **container: Any) -> str:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in volumes]
    return node.run(
        {
            "containers": [shell(script, volumeMounts=mounts, **container)],
            "volumes": [{"name": name, **source} for name, source in volumes.items()],
            "securityContext": SECURITY,
            "hostUsers": False,
        }
    )


def process_of(node: Node, uid: str) -> int:
    node.wait_phase(uid, "Running")
    assert node.runtime is not None
    state = node.runtime.manager.worker.state(uid)
    assert state is not None
    return state.running()[0].pid


def said(node: Node, uid: str, last: str) -> list[str]:
    """The words of its log, once the last one is there."""
    node.wait_phase(uid, "Running")
    return eventually(lambda: (words := node.log(uid).split()) and words[-1] == last and words, within_s=20) or []


def owner(pid: int) -> tuple[int, int]:
    words = Path(f"/proc/{pid}/status").read_text()
    found = {line.split()[0]: line.split()[1:] for line in words.splitlines() if line.startswith(("Uid:", "Gid:"))}
    return int(found["Uid:"][0]), int(found["Gid:"][0])


def test_two_pods_have_nobody_in_common(node: Node) -> None:
    pids = [process_of(node, run(node, "exec sleep 600", {})) for _ in range(2)]
    owners = [owner(pid) for pid in pids]
    for uid, gid in owners:
        assert uid == gid
        assert FIRST <= uid < FIRST + SIZE * 4096
        assert (uid - FIRST) % SIZE == QEMU
    assert owners[0] != owners[1]
    assert len({os.stat(f"/proc/{pid}/ns/user").st_ino for pid in (*pids, os.getpid())}) == 3


@pytest.fixture
def mounted_below() -> Iterator[Path]:
    """Somebody keeps a part of /usr on another file system."""
    place = Path(tempfile.mkdtemp(prefix="virtpod-test-", dir="/usr/local"))
    kernel.mount("tmpfs", str(place), "tmpfs")
    (place / "file").write_text("there\n")
    yield place
    kernel.unmount(place)
    place.rmdir()


def test_what_is_mounted_below_usr_is_no_obstacle_and_cannot_be_written(node: Node, mounted_below: Path) -> None:
    """The kernel does not let a user namespace take a mount apart from what is mounted on it."""
    script = f"cat {mounted_below}/file; touch {mounted_below}/new 2>/dev/null || echo closed; exec sleep 600"
    mounted_below.chmod(0o777)
    assert said(node, run(node, script, {}, image=HOST_IMAGE), "closed") == ["there", "closed"]


def test_what_is_mounted_is_theirs_and_keeps_its_owner_on_the_disk(node: Node, tmp_path: Path) -> None:
    node.objects.secrets["s"] = Secret(data={"k": base64.b64encode(b"hush").decode()})
    content = [directory("disk"), entry("disk/disk.img", b"DISK", mode=0o440, uid=QEMU, gid=QEMU)]
    node.store.import_layout(LayoutBuilder(tmp_path / "l").layer(content).write(), "test.internal/disk:v1")
    host = tmp_path / "host"
    host.mkdir()
    os.chown(host, QEMU, QEMU)
    script = (
        "id -u; cat /secret/k; cat /image/disk/disk.img; for i in empty memory host; do echo x > /$i/file; done;"
        " stat -c %u:%g /empty/file /host/file; cat /etc/hosts > /dev/null; ls /sys/class/net; exec sleep 600"
    )
    volumes = {
        "secret": {"secret": {"secretName": "s", "defaultMode": 0o400}},
        "image": {"image": {"reference": "test.internal/disk:v1", "pullPolicy": "IfNotPresent"}},
        "empty": {"emptyDir": {}},
        "memory": {"emptyDir": {"medium": "Memory"}},
        "host": {"hostPath": {"path": str(host)}},
    }
    uid = run(node, script, volumes)
    lines = said(node, uid, "lo")
    assert lines[0] == str(QEMU)
    assert lines[1:] == ["hushDISK107:107", "107:107", "eth0", "lo"]
    found = (host / "file").stat()
    assert (found.st_uid, found.st_gid) == (QEMU, QEMU), "another Pod, with another range, finds it as it was"


def test_devices_of_a_pod_with_own_users(node: Node) -> None:
    """The cgroup lets it use them, and its user may open them, whatever the node's own file says."""
    limits = {"limits": {"devices.kubevirt.io/tun": "1"}}
    uid = run(node, "exec 3<>/dev/net/tun && echo opened; exec sleep 600", {}, resources=limits)
    assert said(node, uid, "opened") == ["opened"]


def test_a_socket_of_the_machine_for_a_pod_with_own_users(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may connect, whoever it is on the node, and put nothing beside it."""
    inside = "/var/run/daemons/pr/helper.sock"
    tmp_path.chmod(0o755)
    path = tmp_path / "helper.sock"
    monkeypatch.setattr(devices, "SOCKETS", {"pr-helper": (str(path), inside)})
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o666)
        limits = {"limits": {"devices.kubevirt.io/pr-helper": "1"}}
        script = f"test -S {inside} && test -w {inside} && echo mine; (: > {inside}.x) 2>/dev/null || echo closed"
        script += "; exec sleep 600"
        assert said(node, run(node, script, {}, resources=limits), "closed")[-2:] == ["mine", "closed"]


def test_nobody_else_reaches_its_root(node: Node) -> None:
    pid = process_of(node, run(node, "exec sleep 600", {"empty": {"emptyDir": {}}}))
    [root] = [path for path in ROOTS.iterdir() if path.name in Path(f"/proc/{pid}/cgroup").read_text()]
    assert stat.S_IMODE(root.stat().st_mode) == 0o710
    assert opens(everything_below(root)) == {}
    assert opens(everything_below(root), QEMU) == {}


def test_a_pod_that_goes_gives_its_range_back(node: Node) -> None:
    uid = run(node, "exec sleep 600", {})
    base = owner(process_of(node, uid))[0] - QEMU
    entry = TAKEN / str((base - FIRST) // SIZE)
    assert entry.is_symlink()
    node.pods.request_delete(uid, 0)
    node.wait_gone(uid)
    assert not entry.is_symlink()
