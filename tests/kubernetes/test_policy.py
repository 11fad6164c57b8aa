"""What our accounts can do on a real API server: virt-handler its own node and the machines there, virt-controller one
label of a node, and nothing beyond; and that nobody but virt-controller makes a Pod one of a machine.

The tokens are real ones, virt-handler's bound to its Pod as kubelet's are; everything is asked as a dry run, which
passes the same authorization and admission; but for certificates, which virt-controller must see.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.cluster import Cluster
from tests.e2e.engine import eventually
from virt_core.apis.names import SIGNER_HANDLER, TLS_NAME_API, tls_name_node
from virt_core.apis.registry import resource_by_kind
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_core.kube.errors import ApiError
from virt_core.runtime.x509 import Leaf, make_request, names_of, new_key

NAMESPACE = "virtpod"
GUEST = Path(__file__).resolve().parents[2] / "examples" / "vmi-guest.yaml"
OTHER = "virtpod-test-other"
SPACE = f"e2e-policy-{secrets.token_hex(3)}"


class Account:
    """kubectl with a token and nothing else: a client certificate would win over it."""

    def __init__(self, cluster: Cluster, token: str, file: Path) -> None:
        self._cluster, self._file = cluster, file
        view = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        name = view["clusters"][0]["name"]
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": view["clusters"],
            "users": [{"name": "account", "user": {"token": token}}],
            "contexts": [{"name": "account", "context": {"cluster": name, "user": "account"}}],
            "current-context": "account",
        }
        file.write_text(json.dumps(config))
        file.chmod(0o600)

    def ask(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self._cluster.try_kubectl("--kubeconfig", str(self._file), *args)

    def patch(self, kind: str, name: str, change: object, namespace: str = "") -> str:
        path = resource_by_kind(kind).path(namespace, name)
        return self.send("PATCH", path, change, "application/merge-patch+json")

    def send(self, method: str, path: str, body: object, content_type: str, *, dry_run: bool = True) -> str:
        """What the API server says; nothing when it agrees. Not by kubectl, which first reads what it changes."""
        client = KubeClient(load_connection(str(self._file)), "virt-handler")
        query = {"dryRun": "All"} if dry_run else {}
        try:
            client.raw(method, path, query=query, body=json.dumps(body).encode(), content_type=content_type)
        except ApiError as error:
            return str(error)
        finally:
            client.close()
        return ""


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[str]:
    """Where a guest runs. Its namespace also has a machine that never finds a node."""
    cluster.kubectl("create", "namespace", SPACE)
    try:
        cluster.kubectl("-n", SPACE, "apply", "-f", str(GUEST))
        cluster.kubectl("-n", SPACE, "apply", "-f", "-", stdin=json.dumps(homeless()))
        eventually(lambda: cluster.get("vmi", "guest", "-n", SPACE)["status"]["phase"] == "Running", within_s=180)
        yield str(cluster.get("vmi", "guest", "-n", SPACE)["status"]["nodeName"])
    finally:
        cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


def homeless() -> dict[str, object]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "homeless"},
        "spec": {
            "nodeSelector": {"virtpod.io/no-such-node": "true"},
            "domain": {"devices": {}, "memory": {"guest": "64Mi"}},
        },
    }


def handler_of(cluster: Cluster, node: str) -> str:
    pods = cluster.get("pods", "-n", NAMESPACE, "-l", "kubevirt.io=virt-handler")["items"]
    return next(str(pod["metadata"]["name"]) for pod in pods if pod["spec"].get("nodeName") == node)


def token(cluster: Cluster, *bound: str, account: str = "virt-handler") -> str:
    return cluster.kubectl("-n", NAMESPACE, "create", "token", account, *bound).strip()


@pytest.fixture(scope="module")
def handler(cluster: Cluster, node: str, tmp_path_factory: pytest.TempPathFactory) -> Account:
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", handler_of(cluster, node))
    return Account(cluster, token(cluster, *bound), tmp_path_factory.mktemp("account") / "handler")


@pytest.fixture(scope="module")
def stranger(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Account:
    """The same account, with a token that names no node: somebody who may make tokens could have it."""
    return Account(cluster, token(cluster), tmp_path_factory.mktemp("account") / "stranger")


@pytest.fixture(scope="module")
def controller(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Account:
    found = token(cluster, account="virt-controller")
    return Account(cluster, found, tmp_path_factory.mktemp("account") / "controller")


@pytest.fixture(scope="module")
def tenant(cluster: Cluster, node: str, tmp_path_factory: pytest.TempPathFactory) -> Account:
    """Somebody who may do everything with Pods in the namespace of the guest."""
    cluster.kubectl("-n", SPACE, "create", "serviceaccount", "tenant")
    subject = f"--serviceaccount={SPACE}:tenant"
    cluster.kubectl("-n", SPACE, "create", "rolebinding", "tenant", "--clusterrole=edit", subject)
    found = cluster.kubectl("-n", SPACE, "create", "token", "tenant").strip()
    return Account(cluster, found, tmp_path_factory.mktemp("account") / "tenant")


@pytest.fixture(scope="module")
def other_node(cluster: Cluster) -> Iterator[str]:
    """A node that nobody runs, so that one node is enough for this test; never schedulable."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": OTHER},
        "spec": {"unschedulable": True},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(node))
    yield OTHER
    cluster.kubectl("delete", "node", OTHER, "--ignore-not-found")


def test_a_handler_labels_its_own_node(handler: Account, node: str) -> None:
    change = {
        "metadata": {
            "labels": {
                "kubevirt.io/schedulable": "true",
                "cpu-model.node.kubevirt.io/Test": "true",
                "cpumanager": "false",
            },
            "annotations": {"kubevirt.io/heartbeat": "now", "virtpod.io/handler-address": "192.0.2.1:8186"},
        }
    }
    assert handler.patch("Node", node, change) == ""


def test_a_handler_can_not_touch_another_node(handler: Account, node: str, other_node: str) -> None:
    said = handler.patch("Node", other_node, {"metadata": {"labels": {"kubevirt.io/schedulable": "true"}}})
    assert f"virt-handler of node {node} may not change node {other_node}" in said


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
            "not node-role.kubernetes.io/control-plane",
        ),
        ({"metadata": {"annotations": {"example.org/x": "y"}}}, "not example.org/x"),
        ({"metadata": {"labels": {"kubernetes.io/hostname": None}}}, "not kubernetes.io/hostname"),
        ({"spec": {"unschedulable": True}}, "may not change the spec of a node"),
        ({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}, "may not change the spec of a node"),
        ({"metadata": {"finalizers": ["example.org/stay"]}}, "may not change finalizers"),
    ],
)
def test_a_handler_changes_its_node_only_in_our_names(handler: Account, node: str, change: object, told: str) -> None:
    assert told in handler.patch("Node", node, change)


def test_a_token_that_names_no_node_is_worth_nothing(stranger: Account, node: str) -> None:
    told = "does not say on which node it runs"
    assert told in stranger.patch("Node", node, {"metadata": {"labels": {"kubevirt.io/schedulable": "true"}}})
    assert told in stranger.patch("VirtualMachineInstance", "guest", {"status": {"phase": "Running"}}, SPACE)


def test_a_handler_reports_its_own_machines(handler: Account, node: str) -> None:
    assert handler.patch("VirtualMachineInstance", "guest", {"status": {"reason": "Test"}}, SPACE) == ""


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("homeless", {"status": {"reason": "Test"}}, "does not run this VMI"),
        ("homeless", {"metadata": {"finalizers": []}}, "does not run this VMI"),
        ("guest", {"status": {"nodeName": OTHER}}, "may not hand a VMI to another node"),
        ("guest", {"metadata": {"labels": {"kubevirt.io/nodeName": OTHER}}}, "may not hand a VMI to another node"),
        ("guest", {"status": {"migrationState": {"targetNode": OTHER}}}, "may not choose the target"),
        ("guest", {"spec": {"hostname": "another"}}, "may not change the spec of a VMI"),
    ],
)
def test_a_handler_can_not_reach_for_others(handler: Account, node: str, name: str, change: object, told: str) -> None:
    assert told in handler.patch("VirtualMachineInstance", name, change, SPACE)


def told_event(handler: Account, host: str, component: str = "virt-handler") -> str:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"test.{secrets.token_hex(4)}", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": host},
        "reason": "Test",
        "type": "Normal",
        "source": {"component": component, "host": host},
    }
    return handler.send("POST", resource_by_kind("Event").path("default"), event, "application/json")


def test_a_handler_speaks_for_its_own_node_only(handler: Account, stranger: Account, node: str) -> None:
    assert told_event(handler, node) == ""
    assert "may speak for itself and its own node only" in told_event(handler, OTHER)
    assert "may speak for itself and its own node only" in told_event(handler, node, "kubelet")
    assert "does not say on which node" in told_event(stranger, node)


@pytest.mark.parametrize(
    "question",
    [
        "list secrets --all-namespaces",
        "get secrets/virtpod-ca -n virtpod",
        "get secrets/virt-api-client -n virtpod",
        "create pods -n default",
        "delete nodes",
        "patch nodes/x --subresource status",
        "delete virtualmachineinstances -n default",
        "create virtualmachineinstances -n default",
        "create serviceaccounts/virt-controller --subresource token -n virtpod",
        "impersonate users",
    ],
)
def test_rights_that_a_handler_does_not_have(handler: Account, question: str) -> None:
    verb, resource, *rest = question.split()
    done = handler.ask("auth", "can-i", verb, resource, *rest)
    assert done.stdout.strip() == "no", done.stdout + done.stderr


def test_a_handler_reads_no_secret(handler: Account, cluster: Cluster) -> None:
    """Its own key it has made itself; nobody else's is its business."""
    known = [str(each["metadata"]["name"]) for each in cluster.get("secrets", "-n", NAMESPACE)["items"]]
    assert "virtpod-ca" in known
    for name in known:
        done = handler.ask("-n", NAMESPACE, "get", "secrets", "--field-selector", f"metadata.name={name}", "-o", "name")
        assert "forbidden" in done.stderr, name
    assert handler.ask("-n", NAMESPACE, "get", "secrets", "-o", "name").returncode != 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metadata": {"labels": {"kubevirt.io/schedulable": "false"}}}, ""),
        ({"metadata": {"labels": {"kubevirt.io/schedulable": "perhaps"}}}, "only to false"),
        ({"metadata": {"labels": {"kubevirt.io/schedulable": None}}}, "only to false"),
        ({"metadata": {"labels": {"kubevirt.io/ksm-enabled": "true"}}}, "only to false"),
        ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, "only to false"),
        ({"metadata": {"labels": {"kubernetes.io/hostname": None}}}, "only to false"),
        ({"metadata": {"annotations": {"virtpod.io/handler-address": "10.0.0.1:1"}}}, "may not change annotations"),
        ({"metadata": {"finalizers": ["example.org/stay"]}}, "may not change annotations, finalizers"),
        ({"spec": {"unschedulable": True}}, "may not change the spec of a node"),
        ({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}, "may not change the spec of a node"),
    ],
)
def test_virt_controller_only_withdraws_a_node(controller: Account, node: str, change: object, told: str) -> None:
    said = controller.patch("Node", node, change)
    assert told in said
    assert bool(told) is bool(said), said


OWNER = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "name": "guest",
    "uid": "5f9a6d9c-90b1-4d39-9a5e-1c6f1e0f7a11",
    "controller": True,
}
MARKS: list[dict[str, object]] = [
    {"ownerReferences": [OWNER]},
    {"ownerReferences": [{**OWNER, "kind": "VirtualMachine"}]},
    {"labels": {"kubevirt.io": "virt-launcher"}},
    {"labels": {"kubevirt.io": "hotplug-disk"}},
    {"labels": {"kubevirt.io/created-by": "x"}},
    {"labels": {"kubevirt.io/migrationJobUID": "x"}},
    {"annotations": {"kubevirt.io/ephemeral-provisioning": "true"}},
    {"annotations": {"kubevirt.io/domain": "guest"}},
]


def make_pod(account: Account, **metadata: object) -> str:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "posing-", "namespace": SPACE, **metadata},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    return account.send("POST", resource_by_kind("Pod").path(SPACE), pod, "application/json")


def launcher(cluster: Cluster) -> str:
    pods = cluster.get("pods", "-n", SPACE, "-l", "kubevirt.io=virt-launcher")["items"]
    return next(
        str(pod["metadata"]["name"]) for pod in pods if pod["metadata"]["labels"]["vmi.kubevirt.io/id"] == "guest"
    )


@pytest.mark.parametrize("metadata", MARKS, ids=str)
def test_nobody_poses_as_a_machine(
    tenant: Account, controller: Account, stranger: Account, metadata: dict[str, object]
) -> None:
    assert "only virt-controller may" in make_pod(tenant, **metadata)
    assert make_pod(controller, **metadata) == ""
    assert "cannot create resource" in make_pod(stranger, **metadata), "RBAC answers first"


def test_pods_of_others_are_theirs(tenant: Account) -> None:
    assert make_pod(tenant) == ""
    assert make_pod(tenant, labels={"kubevirt.io": "mine"}, ownerReferences=[{**OWNER, "controller": False}]) == ""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"labels": {"colour": "red"}}, ""),
        ({"labels": {"kubevirt.io": None}, "ownerReferences": None}, ""),
        ({"ownerReferences": [OWNER]}, "only virt-controller may make a Pod"),
        ({"labels": {"kubevirt.io/created-by": "x"}}, "by kubevirt.io/created-by"),
        ({"annotations": {"kubevirt.io/domain": "homeless"}}, "by kubevirt.io/domain"),
    ],
)
def test_a_launcher_keeps_its_marks_or_loses_them(cluster: Cluster, tenant: Account, change: object, told: str) -> None:
    """To lose them is allowed: that is what the garbage collector does with the owner of an orphan."""
    said = tenant.patch("Pod", launcher(cluster), {"metadata": change}, SPACE)
    assert told in said
    assert bool(told) is bool(said), said


@pytest.mark.parametrize(
    "question",
    [
        "list secrets --all-namespaces",
        "patch mutatingwebhookconfigurations/virt-api-mutator",
        "patch validatingwebhookconfigurations/virt-api-validator",
        "patch validatingadmissionpolicies/virtpod-launcher-pods",
        "update nodes",
        "delete nodes",
        "patch nodes/x --subresource status",
        "update pods -n default",
        "create serviceaccounts/virt-handler --subresource token -n virtpod",
        "impersonate users",
    ],
)
def test_rights_that_virt_controller_does_not_have(controller: Account, question: str) -> None:
    verb, resource, *rest = question.split()
    done = controller.ask("auth", "can-i", verb, resource, *rest)
    assert done.stdout.strip() == "no", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "[]"}}}, ""),
        ({"metadata": {"annotations": {"kubevirt.io/domain": "another"}}}, "only the networks"),
        ({"metadata": {"labels": {"kubevirt.io/created-by": "x"}}}, "may not change labels"),
        ({"metadata": {"ownerReferences": None}}, "may not change labels, finalizers and owners"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "may not change the spec of a Pod"),
    ],
)
def test_of_a_launcher_virt_controller_changes_the_networks_only(
    cluster: Cluster, controller: Account, change: object, told: str
) -> None:
    said = controller.patch("Pod", launcher(cluster), change, SPACE)
    assert told in said
    assert bool(told) is bool(said), said


def test_virt_controller_does_not_reach_the_pods_of_others(cluster: Cluster, controller: Account) -> None:
    pod = cluster.get("pods", "-n", "virtpod", "-l", "kubevirt.io=virt-handler")["items"][0]["metadata"]["name"]
    change = {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "[]"}}}
    assert "may not change the Pods of others" in controller.patch("Pod", pod, change, "virtpod")


def request(*asked: str, signer: str = SIGNER_HANDLER) -> dict[str, object]:
    text = make_request(new_key(), Leaf("virt-handler", names=asked))
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": f"virtpod-test-{secrets.token_hex(4)}"},
        "spec": {
            "request": base64.b64encode(text).decode(),
            "signerName": signer,
            "usages": ["digital signature", "server auth", "client auth"],
        },
    }


@pytest.fixture
def requests(cluster: Cluster) -> Iterator[list[str]]:
    made: list[str] = []
    yield made
    for name in made:
        cluster.kubectl("delete", "csr", name)


def answer(cluster: Cluster, who: Cluster | Account, body: dict[str, Any], made: list[str]) -> dict[str, Any]:
    """What virt-controller made of a request that `who` really sent."""
    name = str(body["metadata"]["name"])
    made.append(name)
    if isinstance(who, Account):
        path = resource_by_kind("CertificateSigningRequest").path()
        assert who.send("POST", path, body, "application/json", dry_run=False) == ""
    else:
        who.kubectl("create", "-f", "-", stdin=json.dumps(body))

    def answered() -> dict[str, Any] | None:
        status: dict[str, Any] = cluster.get("csr", name).get("status", {})
        kinds = {each["type"] for each in status.get("conditions", ())}
        return status if "certificate" in status or kinds & {"Denied", "Failed"} else None

    found = eventually(answered, within_s=60, what="an answer to the request")
    assert found is not None
    return found


def test_a_node_gets_a_certificate_in_its_own_name(
    cluster: Cluster, handler: Account, node: str, requests: list[str]
) -> None:
    found = answer(cluster, handler, request(tls_name_node(node)), requests)
    certificate = x509.load_pem_x509_certificate(base64.b64decode(found["certificate"]))
    assert names_of(certificate) == {tls_name_node(node)}


@pytest.mark.parametrize("asked", [tls_name_node(OTHER), TLS_NAME_API, "*.virt-handler.virtpod.internal"])
def test_a_node_gets_no_certificate_in_the_name_of_another(
    cluster: Cluster, handler: Account, node: str, requests: list[str], asked: str
) -> None:
    found = answer(cluster, handler, request(asked), requests)
    assert "certificate" not in found
    assert f"virt-handler of node {node} may ask for {tls_name_node(node)} only" in found["conditions"][0]["message"]


def test_nobody_but_virt_handler_gets_a_nodes_certificate(cluster: Cluster, node: str, requests: list[str]) -> None:
    """Not even who may approve everything: an approval by hand makes no certificate."""
    body = request(tls_name_node(node))
    found = answer(cluster, cluster, body, requests)
    assert "certificate" not in found
    assert "only system:serviceaccount:virtpod:virt-handler may ask" in found["conditions"][0]["message"]


def test_a_handler_asks_no_other_signer(handler: Account, stranger: Account, node: str) -> None:
    path = resource_by_kind("CertificateSigningRequest").path()
    body = request(tls_name_node(node), signer="kubernetes.io/kube-apiserver-client")
    assert "may ask the signer virtpod.io/virt-handler only" in handler.send("POST", path, body, "application/json")
    told = stranger.send("POST", path, request(tls_name_node(node)), "application/json")
    assert "does not say on which node it runs" in told


def test_every_node_shows_its_own_certificate(cluster: Cluster) -> None:
    """As virt-api sees it: each address answers in the name of its node, and no key is there twice."""
    shown: dict[str, x509.Certificate] = {}
    for pod in cluster.get("pods", "-n", NAMESPACE, "-l", "kubevirt.io=virt-handler")["items"]:
        look = ("-n", NAMESPACE, "exec", str(pod["metadata"]["name"]), "-c", "virt-handler", "--")
        # The image has neither a shell nor cat.
        text = cluster.kubectl(*look, "python3", "-c", "print(open('/run/virtpod/tls/tls.crt').read())")
        shown[str(pod["spec"]["nodeName"])] = x509.load_pem_x509_certificate(text.encode())
    assert shown
    assert {name: names_of(each) for name, each in shown.items()} == {name: {tls_name_node(name)} for name in shown}
    keys = {pem_of(each) for each in shown.values()}
    assert len(keys) == len(shown)


def pem_of(certificate: x509.Certificate) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return certificate.public_key().public_bytes(serialization.Encoding.PEM, form)
