"""Holes that systems like ours really had, tried on the running system. Each test names the cases that it repeats."""

from __future__ import annotations

import json
import os
import ssl
import stat
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import pytest

from virt_core.apis import names
from virt_core.rpc.channel import tls_channel
from virt_core.rpc.handshake import PROTOCOL_VERSIONS
from virt_core.rpc.status import failure_of
from virt_core.rpc.tls import TlsFiles
from virt_protos.node.v1 import node_pb2
from virt_protos.node.v1.node_pb2_grpc import NodeStub

from .conftest import Space
from .engine import Engine, VirtLocal, eventually
from .manifests import kernel_boot, vmi, with_volume

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

OTHER = f"e2e-other-{os.getpid()}"
CLAIM = "hostile"
#: Run in a launcher's container, by a launcher that was taken over: it speaks to virt-handler in another's name.
FORGE = """
import sys, grpc
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.notify.v1 import notify_pb2, notify_pb2_grpc
domain = pb.Domain(name=sys.argv[1], state=pb.DOMAIN_STATE_CRASHED, message="forged")
with grpc.insecure_channel("unix:" + sys.argv[2]) as channel:
    stub = notify_pb2_grpc.NotifyStub(channel)
    stub.RecordEvent(notify_pb2.RecordEventRequest(type="Warning", reason="Forged", message=sys.argv[1]), timeout=20)
    stub.DomainChanged(notify_pb2.DomainChangedRequest(domain=domain, sequence=1 << 40), timeout=20)
"""
#: Every name that virt-handler opens, makes or serves in a Pod's volumes becomes a link.
PLANT = """
import os, sys
target, *places = sys.argv[1:]
for place in places:
    try:
        os.rename(place, place + ".true")
    except OSError:
        pass
    os.symlink(target, place)
"""


def pod_of(space: Space, name: str) -> str:
    (uid,) = space.vmi(name)["status"]["activePods"]
    pods = space.engine.get("-n", space.namespace, "pods")["items"]
    return next(str(pod["metadata"]["name"]) for pod in pods if pod["metadata"]["uid"] == uid)


def inside(space: Space, name: str, *command: str) -> str:
    """What somebody does who has taken the launcher over."""
    return space.kubectl("exec", pod_of(space, name), "-c", "compute", "--", *command)


def answers(space: Space, name: str, mark: str) -> bool:
    with space.console(name) as console:
        console.prompt()
        return mark in console.shell(f"echo {mark}", within_s=20)


def events_on(space: Space, name: str, reason: str) -> list[Any]:
    found = space.engine.get("-n", space.namespace, "events")["items"]
    return [each for each in found if each["reason"] == reason and each["involvedObject"]["name"] == name]


# A launcher that was taken over


def test_a_launcher_has_no_account(space: Space) -> None:
    """CVE-2020-1701: its Pod has no token, so it reads no Secret and asks the API server nothing."""
    space.boot(kernel_boot("bare"))
    pod = space.engine.get("-n", space.namespace, "pod", pod_of(space, "bare"))
    sources = {key for volume in pod["spec"]["volumes"] for key in volume if key != "name"}
    assert not sources & {"projected", "hostPath", "persistentVolumeClaim"}, sources
    place = str(Path(names.PATH_SERVICE_ACCOUNT).parents[1])
    look = f"import os; print(os.getuid(), *(os.listdir({place!r}) if os.path.isdir({place!r}) else ()))"
    assert inside(space, "bare", "python3", "-c", look).split() == ["107"]
    status = inside(space, "bare", "python3", "-c", "print(open('/proc/1/status').read())")
    capabilities = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    assert int(capabilities, 16) & ~(1 << 10) == 0, "more than NET_BIND_SERVICE"


def test_a_launcher_speaks_for_its_own_machine_only(space: Space) -> None:
    """CVE-2026-13208: the listener is the identity, whatever a message says."""
    space.boot(kernel_boot("victim"))
    space.boot(kernel_boot("liar"))
    inside(
        space,
        "liar",
        "python3",
        "-c",
        FORGE,
        f"{space.namespace}_victim",
        f"{names.PATH_SOCKETS}/{names.SOCKET_NOTIFY}",
    )
    eventually(lambda: events_on(space, "liar", "Forged"), within_s=30, what="the Event, on the liar's own VMI")
    assert events_on(space, "victim", "Forged") == []
    space.phase("liar", "Failed")
    assert space.vmi("victim")["status"]["phase"] == "Running"
    assert answers(space, "victim", "untouched")


def test_links_in_a_launchers_volumes_lead_nowhere(space: Space, tmp_path: Path) -> None:
    """CVE-2025-64437, CVE-2026-7374, CVE-2026-13201, CVE-2026-13218: what they lead to is neither opened, nor
    changed, nor given away, whether virt-handler looks now or after a restart."""
    if not isinstance(space.engine, VirtLocal):
        pytest.skip("watches a file of the machine that virt-handler runs on")
    seen = space.boot(kernel_boot("linker"))
    assert answers(space, "linker", "before")
    precious = tmp_path / "precious"
    precious.write_text("of root")
    precious.chmod(0o600)
    before = precious.stat()
    private = f"{names.PATH_PRIVATE}/{seen['metadata']['uid']}"
    sockets = [f"{names.PATH_SOCKETS}/{each}" for each in (names.SOCKET_LAUNCHER, names.SOCKET_NOTIFY)]
    devices = [f"{private}/{each}" for each in (names.SOCKET_SERIAL, names.SOCKET_VNC)]
    inside(space, "linker", "python3", "-c", PLANT, str(precious), *sockets, *devices)
    done = space.engine.run("virtctl", "-n", space.namespace, "console", "linker", stdin="")
    assert done.returncode != 0, done.stdout
    assert "is not a socket of the machine" in done.stderr, done.stderr
    space.engine.kill_component("virt-handler")
    space.kubectl("delete", "vmi", "linker", "--timeout=120s", timeout=140)
    after = precious.stat()
    assert precious.read_text() == "of root"
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (0, 0, 0o600)
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns), "its owner or mode was written"


# A hostile disk


def test_a_link_in_a_claim_is_not_followed(space: Space) -> None:
    """CVE-2025-64433: `disk.img` is a link to a file of the launcher's own Pod."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}},
    }
    space.apply(claim)
    source = {"persistentVolumeClaim": {"claimName": CLAIM}}
    space.boot(with_volume(kernel_boot("planter"), "data", source))
    disk = f"{names.PATH_VM_DISKS}/data/disk.img"
    plant = f"import os; os.unlink({disk!r}); os.symlink('/etc/passwd', {disk!r})"
    inside(space, "planter", "python3", "-c", plant)
    space.kubectl("delete", "vmi", "planter", "--timeout=60s", timeout=90)
    space.apply(with_volume(kernel_boot("reader"), "data", source))
    failed = space.phase("reader", "Failed", within_s=90)
    told = json.dumps(failed["status"]["conditions"])
    assert "symbolic link" in told, told


# A hostile spec


def volume(source: dict[str, Any]) -> dict[str, Any]:
    return with_volume(vmi("host"), "extra", source)


HOST = {
    "disk of the host, made": volume({"hostDisk": {"path": "/etc/x.img", "type": "DiskOrCreate", "capacity": "1Gi"}}),
    "disk of the host, there": volume({"hostDisk": {"path": "/etc/shadow", "type": "Disk"}}),
    "figures of the host": volume({"downwardMetrics": {}}),
    "path up, disk": volume({"containerDisk": {"image": "i", "path": "/../../etc/shadow"}}),
    "path up, kernel": kernel_boot("host", kernel="/../../../etc/shadow"),
    "path up, initrd": kernel_boot("host", initrd="/boot/../../etc/shadow"),
}


@pytest.mark.parametrize("what", HOST)
def test_nothing_of_the_host_by_a_spec(space: Space, what: str) -> None:
    """CVE-2020-14316, CVE-2025-64324, CVE-2024-31419, CVE-2022-1798: refused at the door, as VMI and as VM."""
    spec = HOST[what]["spec"]
    machine = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "host"},
        "spec": {"runStrategy": "Always", "template": {"spec": spec}},
    }
    for manifest in (HOST[what], machine):
        told = space.refuse(manifest)
        assert "spec." in told, told
    for kind in ("vmi", "vm", "pods"):
        assert not space.engine.get("-n", space.namespace, kind)["items"]


# A node that was taken over


class Account:
    """kubectl with the token of a virt-handler, as it lies on its node."""

    def __init__(self, engine: Engine, node: dict[str, Any], file: Path) -> None:
        self._engine, self._file = engine, file
        bound = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600, "boundObjectRef": bound},
        }
        place = "/api/v1/namespaces/virtpod/serviceaccounts/virt-handler/token"
        answer = json.loads(engine.kubectl("create", "--raw", place, "-f", "-", stdin=json.dumps(request)))
        view = json.loads(engine.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        view["users"] = [{"name": "taken", "user": {"token": answer["status"]["token"]}}]
        view["contexts"] = [{"name": "taken", "context": {"cluster": view["clusters"][0]["name"], "user": "taken"}}]
        file.write_text(json.dumps(view | {"current-context": "taken"}))
        file.chmod(0o600)

    def refused(self, *args: str, stdin: str | None = None) -> str:
        done = self._engine.run("kubectl", "--kubeconfig", str(self._file), *args, stdin=stdin)
        assert done.returncode != 0, f"allowed: kubectl {' '.join(args)}: {done.stdout}"
        return done.stderr


@pytest.fixture
def other_node(engine: Engine) -> Iterator[str]:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}, "spec": {"unschedulable": True}}
    engine.kubectl("create", "-f", "-", stdin=json.dumps(node))
    yield OTHER
    engine.kubectl("delete", "node", OTHER)


@pytest.fixture
def taken(engine: Engine, tmp_path: Path) -> Account:
    """The account of a virt-handler whose node is in other hands."""
    return Account(engine, engine.get("nodes")["items"][0], tmp_path / "taken")


@pytest.mark.parametrize(
    "attempt",
    [
        "get secrets -A",
        "get secrets -n virtpod",
        "get secret virtpod-ca -n virtpod",
        "get secret virt-api-client -n virtpod",
        "run x --image=x -n kube-system",
        "delete pods --all -n virtpod",
        "create clusterrolebinding x --clusterrole=cluster-admin --user=x",
        "create token virt-controller -n virtpod",
        "get nodes --as=kubernetes-admin",
    ],
)
def test_the_account_on_a_node_opens_no_other_door(taken: Account, attempt: str) -> None:
    """CVE-2024-33394: a token that lies on every node is worth little."""
    assert "orbidden" in taken.refused(*attempt.split())


def test_a_taken_node_does_not_reach_for_another(taken: Account, other_node: str) -> None:
    """CVE-2023-26484: neither its labels nor its taints, by which other Pods would be lured or driven away."""
    patches = [
        {"metadata": {"labels": {"kubevirt.io/schedulable": "true"}}},
        {"metadata": {"annotations": {names.ANNOTATION_HANDLER_ADDRESS: "10.0.0.66:8186"}}},
        {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
    ]
    for patch in patches:
        told = taken.refused("patch", "node", other_node, "--type=merge", "-p", json.dumps(patch))
        assert other_node in told or "orbidden" in told, told


def test_a_taken_node_does_not_pull_machines_to_itself(space: Space, taken: Account) -> None:
    """CVE-2025-64436: a machine that runs nowhere, or elsewhere, is none of its business."""
    space.apply(kernel_boot("homeless", nodeSelector={"virtpod.io/no-such-node": "true"}))
    space.phase("homeless", "Scheduling")
    here = space.engine.get("nodes")["items"][0]["metadata"]["name"]
    for patch in ({"status": {"nodeName": here}}, {"metadata": {"labels": {"kubevirt.io/nodeName": here}}}):
        taken.refused("-n", space.namespace, "patch", "vmi", "homeless", "--type=merge", "-p", json.dumps(patch))
    assert not space.vmi("homeless")["status"].get("nodeName")


def test_a_nodes_certificate_opens_no_other_door(space: Space) -> None:
    """CVE-2025-64434, CVE-2025-64432: with it a node is neither virt-api to a node nor the API server to virt-api."""
    if not isinstance(space.engine, VirtLocal):
        pytest.skip("takes the key of a node from virt-local's data directory")
    node = space.engine.get("nodes")["items"][0]["metadata"]
    own = space.engine.data / "tls" / f"virt-handler-{node['name']}"
    target, name = node["annotations"][names.ANNOTATION_HANDLER_ADDRESS], names.tls_name_node(node["name"])
    with tls_channel(target, TlsFiles(own), server_name=name) as channel:
        stub = NodeStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError) as caught:
            stub.Hello(node_pb2.HelloRequest(versions=PROTOCOL_VERSIONS), timeout=20)
    assert failure_of(caught.value).code is grpc.StatusCode.PERMISSION_DENIED
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(own / names.TLS_CERT_FILE, own / names.TLS_KEY_FILE)
    assert as_front_proxy(space, context) in (401, "no connection")


def as_front_proxy(space: Space, context: ssl.SSLContext) -> int | str:
    """What virt-api says to somebody who claims that an administrator is behind them."""
    slices = space.engine.get("-n", "virtpod", "endpointslices")["items"]
    ours = [s for s in slices if s["metadata"]["labels"].get("kubernetes.io/service-name") == "virt-api"]
    found = next(each for each in ours if each.get("endpoints"))
    port = next(each["port"] for each in found["ports"] if each.get("name") != "automation")
    connection = HTTPSConnection(found["endpoints"][0]["addresses"][0], port, context=context, timeout=20)
    headers = {"X-Remote-User": "kubernetes-admin", "X-Remote-Group": "system:masters"}
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/{space.namespace}/virtualmachineinstances/x/guestosinfo"
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    except OSError:
        return "no connection"
    finally:
        connection.close()
