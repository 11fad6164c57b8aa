"""Directories that guest and Pod share: right bytes both ways, read-only where it says so, and no way out."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from .conftest import Configure, Space, admitted
from .console import Console
from .engine import eventually, process_table
from .manifests import kernel_boot

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

SHARED = "/var/run/kubevirt-shared"
GATE = {"developerConfiguration": {"featureGates": ["EnableVirtioFsStorageVolumes", "ContainerPathVolumes"]}}
#: More than the guest has in one piece, so that it goes through many requests.
BYTES = 3 << 20


def with_filesystem(manifest: dict[str, Any], name: str, source: dict[str, Any]) -> dict[str, Any]:
    manifest["spec"]["volumes"].append({"name": name, **source})
    manifest["spec"]["domain"]["devices"].setdefault("filesystems", []).append({"name": name, "virtiofs": {}})
    return manifest


@pytest.fixture
def opened(space: Space, configure: Configure) -> Space:
    """The gate is open, and there are a claim, a ConfigMap and a Secret."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}
    space.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim})
    space.kubectl("create", "configmap", "words", "--from-literal=greeting=hello-from-the-map")
    space.kubectl("create", "secret", "generic", "hush", "--from-literal=word=hush-hush")
    configure(GATE)
    manifest = with_filesystem(kernel_boot("gate"), "data", {"persistentVolumeClaim": {"claimName": "data"}})
    eventually(lambda: admitted(space, manifest), within_s=10, what="the gate is open")
    return space


def machine(name: str) -> dict[str, Any]:
    manifest = with_filesystem(kernel_boot(name), "data", {"persistentVolumeClaim": {"claimName": "data"}})
    with_filesystem(manifest, "words", {"configMap": {"name": "words"}})
    with_filesystem(manifest, "hush", {"secret": {"secretName": "hush"}})
    fields = [{"path": "name", "fieldRef": {"fieldPath": "metadata.labels['who']"}}]
    manifest["metadata"]["labels"] = {"who": "somebody"}
    return with_filesystem(manifest, "self", {"downwardAPI": {"fields": fields}})


def launcher(space: Space) -> str:
    (pod,) = space.engine.get("-n", space.namespace, "pod")["items"]
    return str(pod["metadata"]["name"])


def in_share(space: Space, code: str, share: str = "data") -> str:
    """Runs Python beside virtiofsd, in its container: what it sees is what the guest could ever get at."""
    return space.kubectl("exec", launcher(space), "-c", f"virtiofs-{share}", "--", "python3", "-c", code).strip()


def mount(console: Console, *tags: str) -> None:
    for tag in tags:
        console.shell(f"mkdir -p /mnt/{tag} && mount -t virtiofs {tag} /mnt/{tag} && echo mounted-$?")


def digest_of(path: str) -> str:
    return f"import hashlib; print(hashlib.sha256(open({path!r}, 'rb').read()).hexdigest())"


def test_a_claim_is_shared_both_ways_and_small_files_can_only_be_read(opened: Space) -> None:
    space = opened
    vmi = space.boot(machine("sharer"))
    conditions = {each["type"]: each for each in vmi["status"]["conditions"]}
    assert conditions["LiveMigratable"]["reason"] == "VirtIOFSNotLiveMigratable"
    in_share(space, f"import os; open('{SHARED}/from-pod', 'wb').write(os.urandom({BYTES}))")
    with space.console("sharer") as console:
        console.prompt()
        mount(console, "data", "words", "hush", "self")
        assert in_share(space, digest_of(f"{SHARED}/from-pod")) in console.shell("sha256sum /mnt/data/from-pod")
        console.shell("dd if=/dev/urandom of=/mnt/data/from-guest bs=64k count=48 2>/dev/null; sync")
        assert in_share(space, digest_of(f"{SHARED}/from-guest")) in console.shell("sha256sum /mnt/data/from-guest")
        assert "hello-from-the-map" in console.shell("cat /mnt/words/greeting")
        assert "hush-hush" in console.shell("cat /mnt/hush/word")
        assert "somebody" in console.shell("cat /mnt/self/name")
        for path in ("words/greeting", "hush/word", "words/more"):
            assert "Read-only file system" in console.shell(f"echo changed > /mnt/{path}")
    stays_in_the_claim(space)


def stays_in_the_claim(space: Space) -> None:
    """What the guest wrote is there for the next machine."""
    before = in_share(space, digest_of(f"{SHARED}/from-guest"))
    space.kubectl("delete", "vmi", "sharer", "--timeout=60s", timeout=90)
    space.boot(with_filesystem(kernel_boot("next"), "data", {"persistentVolumeClaim": {"claimName": "data"}}))
    with space.console("next") as console:
        console.prompt()
        mount(console, "data")
        assert before in console.shell("sha256sum /mnt/data/from-guest")


def test_a_guest_does_not_get_out_of_the_share(opened: Space) -> None:
    """By a link, by the directory above, by a device node, by somebody else's name."""
    space = opened
    space.boot(with_filesystem(kernel_boot("digger"), "data", {"persistentVolumeClaim": {"claimName": "data"}}))
    with space.console("digger") as console:
        console.prompt()
        mount(console, "data")
        console.shell("echo the-guests-own > /etc/mark; mkdir /mnt/data/dir; ln -s / /mnt/data/out")
        assert "the-guests-own" in console.shell("cat /mnt/data/out/etc/mark")
        assert "No such file" in console.shell("ls /mnt/data/out/var/run/kubevirt")
        assert "No such file" in console.shell("ls /mnt/data/../var/run/kubevirt /mnt/data/../../var/run/kubevirt")
        # A directory that it holds becomes a link to the container's own root.
        console.shell("cd /mnt/data/dir")
        in_share(space, f"import os; os.rename('{SHARED}/dir', '{SHARED}/old'); os.symlink('/', '{SHARED}/dir')")
        # The guest may remember the directory for a second; then it follows the link in its own root.
        mark = "cat /mnt/data/dir/etc/mark"
        eventually(lambda: "the-guests-own" in console.shell(mark), within_s=20, what="the guest's own root behind it")
        assert "No such file" in console.shell("cat ./etc/passwd ./../etc/passwd")
        assert "not permitted" in console.shell("mknod /mnt/data/memory c 1 1")
        console.shell("echo mine > /mnt/data/mine; chmod 4755 /mnt/data/mine")
        assert "not permitted" in console.shell("chown 1234:1234 /mnt/data/mine")
    seen = in_share(space, f"import os; s = os.stat('{SHARED}/mine'); print(s.st_uid, s.st_gid, os.getuid())")
    assert seen.split() == ["107", "107", "107"]
    confined(space)


def confined(space: Space) -> None:
    """The container of virtiofsd is the wall: no rights, and nothing in it but the share and the socket."""
    status = in_share(space, "print(open('/proc/1/status').read())")
    facts = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    listed = in_share(space, "import os; print(*os.listdir('/var/run'), *os.listdir('/var/run/kubevirt'))")
    assert not {"kubevirt-private", "sockets", "secrets"} & set(listed.split())


def test_a_path_of_the_container_is_shared_if_it_is_a_volumes(opened: Space) -> None:
    """That of the token, which the API server mounts: the guest reads it and cannot write. A piece of the image is not
    shared, and the machine says why."""
    space, tokens = opened, "/var/run/secrets/kubernetes.io/serviceaccount"
    account = {"serviceAccount": {"serviceAccountName": "default"}}
    manifest = with_filesystem(kernel_boot("reader"), "account", account)
    space.boot(with_filesystem(manifest, "path", {"containerPath": {"path": tokens}}))
    with space.console("reader") as console:
        console.prompt()
        mount(console, "path")
        assert space.namespace in console.shell("cat /mnt/path/namespace")
        assert "Read-only file system" in console.shell("touch /mnt/path/mine")
    space.apply(with_filesystem(kernel_boot("nosy"), "path", {"containerPath": {"path": "/etc"}}))
    eventually(lambda: space.vmi("nosy")["status"].get("phase") == "Failed", within_s=60, what="the VMI is Failed")
    events = space.engine.get("-n", space.namespace, "events")["items"]
    assert any("no volume is mounted at /etc" in event["message"] for event in events)


def test_the_end_of_virtiofsd_is_told(opened: Space) -> None:
    """The guest goes on, and the machine says why its files do not come."""
    space = opened
    space.boot(with_filesystem(kernel_boot("orphan"), "words", {"configMap": {"name": "words"}}))
    os.kill(daemon_of(space, "orphan"), signal.SIGKILL)

    def told() -> Any:
        conditions = {each["type"]: each for each in space.vmi("orphan")["status"]["conditions"]}
        return conditions.get("Synchronized")

    condition = eventually(told, within_s=30, what="the condition Synchronized")
    assert condition["reason"] == "MissingVirtiofsContainers"
    assert "virtiofs-words" in condition["message"]
    assert space.vmi("orphan")["status"]["phase"] == "Running"


def daemon_of(space: Space, name: str) -> int:
    """The virtiofsd in the control group of the machine's Pod."""
    (uid,) = space.vmi(name)["status"]["activePods"]
    for pid, args in process_table():
        if any(word.endswith("virtiofsd") for word in args) and any(word.startswith("--socket-path=") for word in args):
            with open(f"/proc/{pid}/cgroup") as file:
                groups = file.read()
            if uid in groups or uid.replace("-", "_") in groups:
                return pid
    raise LookupError(f"no virtiofsd of {space.namespace}/{name}")
