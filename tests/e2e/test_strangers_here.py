"""Users of the machine that virt-local runs on, who have no part in it: nothing of it is theirs to read or call."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework.stranger import NOBODY, everything_below, listeners, may_signal, opens
from virt_local.node.users import work_here
from virt_local.up.instance import OWN_ENTRIES

from .conftest import Space
from .engine import VirtLocal, process_table
from .kubernetes import wanted
from .manifests import vmi, with_volume

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(wanted(), reason="on a cluster the kubelet keeps the directories"),
]

NAMESPACE = f"e2e-{os.getpid()}-strangers"
SECRET = "a-password-of-a-tenant"
QEMU = 107
HOST_IMAGE = "virtpod.internal/host:latest"


@pytest.fixture(scope="module")
def local() -> Iterator[VirtLocal]:
    """A virt-local whose place was there before, open for all, as /var/lib/virtpod of an older version is."""
    local = VirtLocal(letter="h")
    local.data.chmod(0o755)
    try:
        local.start()
        local.kubectl("create", "namespace", NAMESPACE)
        yield local
        local.drop_namespace(NAMESPACE)
    finally:
        local.stop()
    assert not local.leftovers()


@pytest.fixture(scope="module")
def space(local: VirtLocal) -> Space:
    """With a VM that has a Secret as a disk, and a Pod that has a token."""
    space = Space(local, NAMESPACE)
    space.kubectl("create", "secret", "generic", "tenant", f"--from-literal=password={SECRET}")
    space.apply(_pod())
    manifest = with_volume(vmi("kept"), "secret", {"secret": {"secretName": "tenant"}})
    space.boot(manifest)
    space.kubectl("wait", "--for=condition=Ready", "pod/plain", "--timeout=60s")
    return space


def _pod() -> dict[str, object]:
    """Its program is the user that guests run as."""
    container = {
        "name": "c",
        "image": HOST_IMAGE,
        "command": ["sh", "-c", "exec sleep 600"],
        "securityContext": {"runAsUser": QEMU, "runAsGroup": QEMU},
        "volumeMounts": [{"name": "secret", "mountPath": "/new/place"}, {"name": "empty", "mountPath": "/new/empty"}],
    }
    items = [{"key": "password", "path": "deep/password"}]
    volumes = [
        {"name": "secret", "secret": {"secretName": "tenant", "items": items}},
        {"name": "empty", "emptyDir": {}},
    ]
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": spec}


@pytest.mark.parametrize("uid", [NOBODY, QEMU])
def test_nothing_opens(local: VirtLocal, space: Space, uid: int) -> None:
    """Not even for somebody who has the number that guests run as."""
    paths = everything_below(local.data)
    assert any(path.endswith("/password") for path in paths)
    assert any(path.endswith("/token") for path in paths)
    assert any(stat.S_ISSOCK(os.lstat(path).st_mode) for path in paths if os.path.lexists(path))
    assert opens(paths, uid) == {}


def test_the_pod_reaches_what_is_mounted_into_it(space: Space) -> None:
    script = "cat /new/place/deep/password && umask && echo 1 > /new/empty/file && ls /new /etc/hosts /usr"
    assert space.kubectl("exec", "plain", "--", "sh", "-c", script).startswith(f"{SECRET}0022")


def test_who_waits_for_callers(local: VirtLocal, space: Space) -> None:
    """Only ports that ask for credentials, on loopback and on the nodes' own bridge; and health without secrets."""
    here = os.stat("/proc/self/ns/net").st_ino
    pids = [pid for pid in _processes(local) if os.stat(f"/proc/{pid}/ns/net").st_ino == here]
    # What is bound by a descriptor lies in the data directory as well, and is tried above.
    ours = (f"unix {local.data}", "unix /proc/self/fd/")
    found = {row for row in listeners(pids) if not row.startswith(ours)}
    bridge = local.network.replace(".0/16", ".1")
    loopback = {f"tcp 127.0.0.1:{local.port + step}" for step in (0, 739, 1000, 1001)}
    assert found == loopback | {f"tcp {bridge}:{local.port}"}


def test_no_secret_on_a_command_line(local: VirtLocal, space: Space) -> None:
    """Everybody may read those of all processes."""
    for pid in _processes(local):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        assert SECRET not in line
        assert "eyJ" not in line, "a token"


def _processes(local: VirtLocal) -> list[int]:
    marks = (str(local.data), NAMESPACE)
    return [pid for pid, args in process_table() if any(mark in arg for arg in args for mark in marks)]


def test_guests_have_no_user_in_common(local: VirtLocal, space: Space) -> None:
    """Whoever breaks out of one guest can neither signal nor look into the next."""
    if not work_here(local.data):
        pytest.skip("no idmapped mounts here: guests share a user, as `up` says")
    space.boot(vmi("second"))
    pids = [local.qemu_pid(NAMESPACE, name) for name in ("kept", "second")]
    owners = [os.stat(f"/proc/{pid}").st_uid for pid in pids]
    assert QEMU not in owners
    assert len(set(owners)) == 2
    secrets = [f"/proc/{pids[1]}/{name}" for name in ("environ", "mem", "maps")]
    assert may_signal(pids[1], owners[1]), "its own user may, so the attempt is one"
    for stranger in (owners[0], QEMU, NOBODY):
        assert opens(secrets, stranger) == {}
        assert not may_signal(pids[1], stranger)
    space.kubectl("delete", "vmi", "second", timeout=90)


def test_an_open_state_is_closed_by_the_next_start(local: VirtLocal, space: Space) -> None:
    """As an older version left it. The Pod and the guest run on and keep what was mounted into them."""
    qemu = local.qemu_pid(NAMESPACE, "kept")
    for path in (local.data, *local.data.glob("nodes"), *local.data.glob("nodes/*"), *local.data.glob("nodes/*/*")):
        path.chmod(0o755)
    for path in local.data.glob("logs/*"):
        path.chmod(0o644)
    assert opens(everything_below(local.data)), "the state should be open now"
    os.kill(int((local.data / "run" / "supervisor.lock").read_text().split()[0]), signal.SIGKILL)
    local.start()
    assert opens(everything_below(local.data)) == {}
    directories = [local.data, *(path for path in local.data.glob("nodes/*/*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in local.data.glob("logs/*")} == {0o600}
    assert set(os.listdir(local.data)) <= OWN_ENTRIES
    assert local.qemu_pid(NAMESPACE, "kept") == qemu
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert space.kubectl("exec", "plain", "--", "cat", token).startswith("eyJ")
