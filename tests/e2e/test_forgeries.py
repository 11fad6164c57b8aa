"""What a stranger in the cluster says in the API server's name, or in virt-controller's, is not believed."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
import uuid
from dataclasses import replace
from typing import Any

import pytest

from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_core.kube.errors import ApiError

from .conftest import Space
from .engine import Engine
from .manifests import vmi
from .vms import vm

pytestmark = pytest.mark.e2e

INSTALLED = "virtpod"


def virt_api(engine: Engine) -> str:
    """Where virt-api listens, as everybody in the cluster can reach it."""
    for piece in engine.get("-n", INSTALLED, "endpointslices", "-l", "kubernetes.io/service-name=virt-api")["items"]:
        for endpoint in piece.get("endpoints") or ():
            port = next(entry["port"] for entry in piece["ports"] if entry["name"] == "https")
            return f"https://{endpoint['addresses'][0]}:{port}"
    raise LookupError("virt-api has no endpoint")


def send(url: str, body: object, headers: dict[str, str]) -> tuple[int, str]:
    """As somebody who does not care whom he talks to."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    said = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), said, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def webhook_paths(engine: Engine) -> dict[str, str]:
    """Where the API server sends its reviews, by the last part of the path."""
    found = {}
    for kind, name in (("mutating", "virt-api-mutator"), ("validating", "virt-api-validator")):
        for hook in json.loads(engine.kubectl("get", f"{kind}webhookconfiguration", name, "-o", "json"))["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            found[path.rpartition("/")[2]] = path
    return found


def review(space: Space, name: str, kind: tuple[str, str, str], obj: dict[str, Any], **more: Any) -> dict[str, Any]:
    group, version, what = kind
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": {"group": group, "version": version, "kind": what},
            "name": name,
            "namespace": space.namespace,
            "operation": "CREATE",
            "userInfo": {"username": "system:admin", "groups": ["system:masters"]},
            "object": obj,
            **more,
        },
    }


def eviction_of(space: Space, pod: str) -> dict[str, Any]:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": space.namespace}}
    pods = {"group": "", "version": "v1", "resource": "pods"}
    return review(space, pod, ("policy", "v1", "Eviction"), eviction, resource=pods, subResource="eviction")


def disguises(space: Space) -> list[dict[str, str]]:
    """What somebody without the API server's certificate can say of himself."""
    token = space.kubectl("create", "token", "default").strip()
    claims = {"X-Remote-User": "system:apiserver", "X-Remote-Group": "system:masters"}
    bearer = {"Authorization": f"Bearer {token}"}
    return [{}, claims, bearer, claims | bearer]


def test_a_forged_eviction_marks_nobody(space: Space) -> None:
    manifest = vmi("marked")
    manifest["spec"]["evictionStrategy"] = "External"
    space.apply(manifest)
    space.ready("marked")
    (pod,) = space.engine.get("-n", space.namespace, "pods")["items"]
    forged = eviction_of(space, pod["metadata"]["name"])
    where, path = virt_api(space.engine), webhook_paths(space.engine)["pod-eviction-validate"]
    for said in disguises(space):
        status, text = send(where + path, forged, said)
        assert (status, "marked" in text) == (403, False), text
    assert send(f"{where}/pod-eviction-validate", forged, {})[0] == 404
    # Nor by way of the API server: not even an administrator is the API server.
    asked = space.engine.run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(forged))
    assert asked.returncode != 0
    assert "comes from the API server" in asked.stderr
    assert "evacuationNodeName" not in space.vmi("marked")["status"]

    # A true one is heard; as a dry run it marks nobody either.
    eviction = forged["request"]["object"] | {"deleteOptions": {"dryRun": ["All"]}}
    evict = f"/api/v1/namespaces/{space.namespace}/pods/{pod['metadata']['name']}/eviction"
    dry = space.engine.run("kubectl", "create", "--raw", evict, "-f", "-", stdin=json.dumps(eviction))
    assert "Eviction triggered evacuation of VMI" in dry.stderr
    assert "evacuationNodeName" not in space.vmi("marked")["status"]


def test_forged_reviews_tell_nothing(space: Space) -> None:
    domain = {"cpu": {"model": "a-secret-model"}, "devices": {}}
    preset = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstancePreset",
        "metadata": {"name": "secret-size"},
        "spec": {"selector": {"matchLabels": {"size": "secret"}}, "domain": domain},
    }
    space.apply(preset)
    manifest = vmi("asks")
    manifest["metadata"]["labels"] = {"size": "secret"}
    forged = review(space, "asks", ("kubevirt.io", "v1", "VirtualMachineInstance"), manifest)
    where = virt_api(space.engine)
    for path in webhook_paths(space.engine).values():
        for said in disguises(space)[:2]:
            status, text = send(where + path, forged, said)
            assert (status, "secret" in text) == (403, False), f"{path}: {text}"


def as_tenant(space: Space) -> tuple[str, ...]:
    """Flags of kubectl for somebody who may do everything with Pods in this namespace."""
    space.kubectl("create", "serviceaccount", "tenant")
    space.kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", f"--serviceaccount={space.namespace}:tenant")
    return ("-n", space.namespace, f"--as=system:serviceaccount:{space.namespace}:tenant")


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        # Nowhere to run: what is tried is who may make it.
        "spec": {"nodeName": "", "nodeSelector": {"no-node": "has-this"}, "containers": [{"name": "c", "image": "x"}]},
    }


def owner(kind: str = "VirtualMachineInstance", *, controller: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": kind,
        "name": "someone",
        "uid": "5f9a6d9c-90b1-4d39-9a5e-1c6f1e0f7a11",
        "controller": controller,
    }


MARKS: dict[str, dict[str, Any]] = {
    "an owner": {"ownerReferences": [owner()]},
    "a VM as owner": {"ownerReferences": [owner("VirtualMachine")]},
    "the label of launchers": {"labels": {"kubevirt.io": "virt-launcher"}},
    "the label of attachments": {"labels": {"kubevirt.io": "hotplug-disk"}},
    "the label of a VMI": {"labels": {"kubevirt.io/created-by": "x"}},
    "the label of a migration": {"labels": {"kubevirt.io/migrationJobUID": "x"}},
    "the annotation of a first user": {"annotations": {"kubevirt.io/ephemeral-provisioning": "true"}},
    "the annotation of a domain": {"annotations": {"kubevirt.io/domain": "x"}},
}


def test_only_virt_controller_makes_a_pod_a_launcher(space: Space) -> None:
    """Neither with its creation nor later; what is not ours is nobody's business but its owner's."""
    tenant = as_tenant(space)

    def create(manifest: dict[str, Any], *flags: str) -> subprocess.CompletedProcess[str]:
        return space.engine.run("kubectl", *tenant, "create", *flags, "-f", "-", stdin=json.dumps(manifest))

    def change(name: str, metadata: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        patch = json.dumps({"metadata": metadata})
        return space.engine.run("kubectl", *tenant, "patch", "pod", name, "--type=merge", "-p", patch)

    own = create(pod("own", labels={"kubevirt.io": "mine"}))
    assert own.returncode == 0, own.stderr
    # Only as a trial: the garbage collector would take it, for there is no such owner.
    used = create(pod("used", ownerReferences=[owner(controller=False)]), "--dry-run=server")
    assert used.returncode == 0, used.stderr
    for number, (what, metadata) in enumerate(MARKS.items()):
        for tried in (create(pod(f"false-{number}", **metadata)), change("own", metadata)):
            assert tried.returncode != 0, f"{what}: {tried.stdout}"
            assert "only virt-controller" in tried.stderr, f"{what}: {tried.stderr}"
    assert change("own", {"labels": {"colour": "red", "kubevirt.io": None}}).returncode == 0


def test_the_garbage_collector_takes_an_orphan_its_owner(space: Space) -> None:
    """It is not virt-controller, and it changes the owners of a Pod that only virt-controller could make."""
    controller = f"--as=system:serviceaccount:{INSTALLED}:virt-controller"
    space.apply(vm("parent", "Halted"))
    uid = space.engine.get("-n", space.namespace, "vm", "parent")["metadata"]["uid"]
    reference = {**owner("VirtualMachine"), "name": "parent", "uid": uid}
    marked = pod("kept", labels={"kubevirt.io": "virt-launcher"}, ownerReferences=[reference])
    space.kubectl(controller, "create", "-f", "-", stdin=json.dumps(marked))
    space.kubectl("delete", "vm", "parent", "--cascade=orphan")
    kept = space.engine.get("-n", space.namespace, "pods", "kept")["metadata"]
    assert not kept.get("ownerReferences")
    assert kept["labels"] == {"kubevirt.io": "virt-launcher"}


def test_virt_controller_changes_nothing_of_a_node_but_whether_it_gets_machines(space: Space) -> None:
    token = space.engine.kubectl("-n", INSTALLED, "create", "token", "virt-controller").strip()
    mine = replace(load_connection(space.engine.kubeconfig), cert_pem=b"", key_pem=b"", token=token)
    node = space.engine.get("nodes")["items"][0]["metadata"]["name"]

    def change(patch: dict[str, Any]) -> str:
        """What the API server says against it; kubectl would look at the node first, which this account may not."""
        client = KubeClient(mine, "virt-controller")
        merge = {"body": json.dumps(patch).encode(), "content_type": "application/merge-patch+json"}
        try:
            client.raw("PATCH", f"/api/v1/nodes/{node}", query={"dryRun": "All"}, **merge)
        except ApiError as refused:
            return str(refused)
        finally:
            client.close()
        return ""

    for patch in (
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"labels": {"kubevirt.io/schedulable": "true-for-me"}}},
        {"metadata": {"labels": {"kubevirt.io/ksm-enabled": "true"}}},
        {"metadata": {"annotations": {"virtpod.io/handler-address": "10.0.0.1:1"}}},
        {"metadata": {"finalizers": ["example.org/stay"]}},
    ):
        assert "virt-controller may" in change(patch), patch
    assert change({"metadata": {"labels": {"kubevirt.io/schedulable": "false"}}}) == ""
