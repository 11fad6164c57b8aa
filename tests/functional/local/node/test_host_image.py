"""The host image shows what a launcher needs and nothing else of the machine."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from functional.local.node.support import Node, eventually

from virt_local.node.images.host import HOST_IMAGE, python_places, running_environment
from virt_local.node.oneshot import Mount, run_host_container

pytestmark = pytest.mark.root

_LOOK = """
import os, sys
for path in sys.argv[1:]:
    try:
        kind = "dir:" + ",".join(sorted(os.listdir(path))) if os.path.isdir(path) else "file"
    except OSError as err:
        kind = "denied" if os.path.lexists(path) else "absent"
    print(path, kind if os.path.lexists(path) else "absent")
"""


def look(*paths: str, uid: int = 107) -> dict[str, str]:
    code, output = run_host_container(["python3", "-c", _LOOK, *paths], uid=uid, gid=uid, timeout_s=30)
    assert code == 0, output
    return dict(line.split(" ", 1) for line in output.splitlines())


def expected(path: str, empty: str = "absent") -> str:
    """Nothing, but for the way to our own Python environment where the checkout lies below `path`."""
    below = [place for place in python_places(running_environment(), []) if place.startswith(path + "/")]
    names = sorted({place[len(path) + 1 :].split("/")[0] for place in below})
    return "dir:" + ",".join(names) if names else empty


@pytest.mark.parametrize("uid", [0, 107])
def test_nothing_private_is_visible(tmp_path: Path, uid: int) -> None:
    """Not even root inside sees homes, variable data, sockets, keys or password hashes."""
    secret = Path("/var/lib") / f"vp-host-image-test-{time.monotonic_ns()}"
    secret.write_text("secret")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "sock"))
    try:
        seen = look(
            "/home", "/root", "/srv", "/boot", "/media", "/opt", "/var", "/var/lib", "/run", "/tmp", "/etc",
            "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers", str(secret),
            str(tmp_path), str(tmp_path / "sock"), "/run/dbus", "/var/run/libvirt", "/etc/libvirt/qemu", uid=uid,
        )  # fmt: skip
    finally:
        listener.close()
        secret.unlink()
    for path in (
        "/home", "/root", "/srv", "/boot", "/media", "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/ssl/private",
        "/etc/sudoers", str(secret), str(tmp_path), str(tmp_path / "sock"), "/run/dbus", "/var/run/libvirt",
        "/etc/libvirt/qemu",
    ):  # fmt: skip
        assert seen[path] == expected(path), path
    for path in ("/run", "/tmp", "/var/lib"):
        assert seen[path] == expected(path, "dir:"), path
    assert set(seen["/var"].removeprefix("dir:").split(",")) == {"cache", "lib", "log", "run", "tmp"}


def test_only_root_qemu_and_nobody_exist() -> None:
    code, output = run_host_container(["cut", "-d:", "-f1,3", "/etc/passwd"], timeout_s=30)
    assert (code, output.split()) == (0, ["root:0", "qemu:107", "nobody:65534"])


def test_the_python_environment_works() -> None:
    code, output = run_host_container(
        ["python3", "-c", "import virt_core, msgspec, os; print(os.getuid(), os.getgroups())"], timeout_s=30
    )
    assert (code, output.strip()) == (0, "107 []")


def test_nothing_can_be_written_and_setuid_is_dead() -> None:
    script = "touch /usr/x; touch /etc/x; touch /x; touch /tmp/ok && grep ' /usr ' /proc/mounts"
    _, output = run_host_container(["sh", "-c", script], uid=0, gid=0, timeout_s=30)
    assert output.count("Read-only file system") == 3
    mounts = next(line for line in output.splitlines() if " /usr " in line)
    assert {"ro", "nosuid", "nodev"} <= set(mounts.split()[3].split(","))


def test_a_mount_is_written_by_the_qemu_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    code, output = run_host_container(["sh", "-c", "id -u > /data/who"], [Mount(tmp_path, "/data")], timeout_s=30)
    assert (code, output) == (0, "")
    assert (tmp_path / "who").read_text() == "107\n"
    assert (tmp_path / "who").stat().st_uid == 107


def test_the_deadline_holds() -> None:
    with pytest.raises(TimeoutError, match="sleep took longer than 1 s"):
        run_host_container(["sleep", "600"], timeout_s=1)


def test_a_launcher_like_pod(node: Node) -> None:
    """The shape of a launcher Pod: host image, uid 107, restricted, nested volumes, a device."""
    volumes = ["private", "public", "sockets", "tmp"]
    spec = {
        "securityContext": {
            "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": True, "fsGroup": 107,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "c",
                "image": HOST_IMAGE,
                "command": ["sh", "-c", "id -u; stat -c %a /dev/net/tun; touch /var/run/kubevirt/sockets/s; sleep 100"],
                "resources": {"limits": {"devices.kubevirt.io/tun": "1"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                },
                "volumeMounts": [
                    {"name": "private", "mountPath": "/var/run/kubevirt-private"},
                    {"name": "sockets", "mountPath": "/var/run/kubevirt/sockets"},
                    {"name": "public", "mountPath": "/var/run/kubevirt"},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }
        ],
        "volumes": [{"name": name, "emptyDir": {}} for name in volumes],
    }  # fmt: skip
    uid = node.run(spec)
    node.wait_phase(uid, "Running")
    directory = node.settings.root / "pods" / uid / "volumes" / "kubernetes.io~empty-dir"
    eventually((directory / "sockets" / "s").exists)
    made = (directory / "sockets" / "s").stat()
    assert (made.st_uid, made.st_gid) == (107, 107)
    assert node.log(uid).split() == ["107", "666"]
