"""The commands that users type, with a real kubectl."""

from __future__ import annotations

import json
import select
import subprocess
import time

import pytest

from .conftest import ApiServer, Kubectl

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: c, image: "busybox:1.36", command: [sleep, "1000"], resources: {limits: {cpu: 1, memory: 64Mi}}}
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing, shortNames: [th], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ready, type: string, jsonPath: ".status.conditions[?(@.type=='Ready')].status"}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A thing.
        properties:
          spec:
            type: object
            description: What is wanted of a thing.
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How big it is.}
              replicas: {type: integer}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
THING = """
apiVersion: example.com/v1
kind: Thing
metadata: {name: %s}
spec: {size: %s}
"""


@pytest.fixture
def things(kubectl: Kubectl) -> Kubectl:
    kubectl("apply", "-f", "-", stdin=CRD)
    kubectl("wait", "--for=condition=Established", "crd/things.example.com", "--timeout=5s")
    return kubectl


def test_version_and_resources(kubectl: Kubectl) -> None:
    assert "v1.36.0+virtpod" in kubectl("version")
    listed = kubectl("api-resources")
    assert "customresourcedefinitions" in listed
    assert "poddisruptionbudgets" in listed
    assert "rbac.authorization.k8s.io/v1" in kubectl("api-versions")


def test_apply_diff_label_describe_delete_a_pod(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply", "-f", "-", stdin=POD)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=POD)
    changed = POD.replace("app: web", "app: web2")
    assert "+    app: web2" in kubectl("diff", "-f", "-", stdin=changed, ok=False)
    assert "configured" in kubectl("apply", "-f", "-", stdin=changed)
    kubectl("label", "pod", "web", "x=y")
    kubectl("annotate", "pod", "web", "n=1")
    wide = kubectl("get", "pods", "-o", "wide")
    assert wide.splitlines()[0].split()[:6] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"]
    assert "0/1" in wide
    assert "QoS Class:        Guaranteed" in kubectl("describe", "pod", "web")
    patched = kubectl("patch", "pod", "web", "-p", '{"spec":{"containers":[{"name":"c","image":"busybox:2"}]}}')
    assert "patched" in patched
    assert kubectl("get", "pod", "web", "-o", "jsonpath={.spec.containers[0].image}") == "busybox:2"
    kubectl("delete", "pod", "web")
    assert "not found" in kubectl("get", "pod", "web", ok=False)


def test_explain(things: Kubectl) -> None:
    assert "imagePullPolicy" in things("explain", "pod.spec.containers")
    text = things("explain", "thing.spec")
    assert "What is wanted of a thing." in text
    assert "How big it is." in text


def test_custom_objects(things: Kubectl) -> None:
    things("apply", "-f", "-", stdin=THING % ("one", 3))
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    things("patch", "th", "one", "--subresource=status", "--type=merge", "-p", status)
    header, row = things("get", "th", "one").splitlines()
    assert header.split() == ["NAME", "SIZE", "READY", "AGE"]
    assert row.split()[:3] == ["one", "3", "True"]
    assert "thing.example.com/one" in things("get", "all")
    things("wait", "--for=condition=Ready", "th/one", "--timeout=5s")
    things("scale", "th", "one", "--replicas=4")
    assert things("get", "th", "one", "-o", "jsonpath={.spec.replicas}") == "4"
    things("delete", "th", "one")


def test_bad_custom_objects_name_the_field(things: Kubectl) -> None:
    unknown = things("apply", "-f", "-", stdin=(THING % ("bad", 3)).replace("size", "sise"), ok=False)
    assert 'unknown field "spec.sise"' in unknown
    assert "spec.size: Invalid value: 0" in things("apply", "-f", "-", stdin=THING % ("bad", 0), ok=False)
    assert "must be of type integer" in things("create", "-f", "-", stdin=THING % ("bad", "big"), ok=False)
    assert "not found" in things("get", "th", "bad", ok=False)


def test_server_side_apply(things: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    assert "serverside-applied" in things(*apply, stdin=THING % ("ssa", 3))
    assert "serverside-applied" in things(*apply, stdin=THING % ("ssa", 4))
    refused = things(*apply, "--field-manager=other", stdin=THING % ("ssa", 5), ok=False)
    assert 'conflict with "kubectl"' in refused
    things(*apply, "--field-manager=other", "--force-conflicts", stdin=THING % ("ssa", 5))
    assert things("get", "th", "ssa", "-o", "jsonpath={.spec.size}") == "5"
    things(*apply, stdin=POD)
    things(*apply, stdin=POD)
    things("delete", "pod", "web")


def test_client_side_apply_moves_to_server_side(things: Kubectl) -> None:
    things("apply", "-f", "-", stdin=THING % ("moved", 3))
    things("apply", "--server-side", "-f", "-", stdin=THING % ("moved", 3))
    assert things("get", "th", "moved", "-o", "jsonpath={.spec.size}") == "3"


def test_watch_prints_changes(things: Kubectl) -> None:
    things("apply", "-f", "-", stdin=THING % ("watched", 1))
    command = things.command("get", "th", "watched", "-w", "--no-headers")
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=things.environment) as watching:
        assert watching.stdout is not None
        try:
            assert _line(watching).split()[:2] == ["watched", "1"]
            things("patch", "th", "watched", "--type=merge", "-p", '{"spec":{"size":2}}')
            assert _line(watching).split()[:2] == ["watched", "2"]
        finally:
            watching.kill()


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 10)
    assert ready, "nothing was printed"
    return process.stdout.readline().decode()


def test_typed_creates(kubectl: Kubectl) -> None:
    """These commands send protobuf."""
    kubectl("create", "namespace", "made")
    kubectl("-n", "made", "create", "configmap", "a", "--from-literal=x=y")
    kubectl("-n", "made", "create", "secret", "generic", "s", "--from-literal=p=q")
    kubectl("-n", "made", "create", "role", "r", "--verb=get", "--resource=pods")
    kubectl("-n", "made", "create", "rolebinding", "rb", "--role=r", "--serviceaccount=made:default")
    kubectl("-n", "made", "create", "pdb", "p", "--selector=a=b", "--min-available=1")
    kubectl("-n", "made", "create", "service", "clusterip", "svc", "--tcp=80:8080")
    assert kubectl("-n", "made", "get", "secret", "s", "-o", "jsonpath={.data.p}") == "cQ=="
    assert "yes" in kubectl("auth", "can-i", "create", "pods")
    assert "system:admin" in kubectl("auth", "whoami")
    kubectl("delete", "namespace", "made", "--wait=false")
    assert "Terminating" in kubectl("get", "ns", "made")


def test_events_of_an_object(kubectl: Kubectl, server: ApiServer) -> None:
    kubectl("create", "-f", "-", stdin=POD.replace("name: web", "name: told"))
    uid = kubectl("get", "pod", "told", "-o", "jsonpath={.metadata.uid}")
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    event = {
        "metadata": {"generateName": "told."},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "told", "uid": uid, "apiVersion": "v1"},
        "reason": "Started",
        "message": "it has started",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 2,
        "source": {"component": "test"},
    }
    server.request("POST", "/api/v1/namespaces/default/events", event)
    assert "it has started" in kubectl("describe", "pod", "told")
    assert "pod/told" in kubectl("get", "events")
    assert "it has started" in kubectl("events", "--for", "pod/told")
    kubectl("delete", "pod", "told")


def test_deleting_a_crd_takes_its_objects_along(things: Kubectl) -> None:
    things("apply", "-f", "-", stdin=THING % ("last", 1))
    things("delete", "crd", "things.example.com")
    assert "could not find the requested resource" in things("get", "things", ok=False)
    things("apply", "-f", "-", stdin=CRD)
    assert "No resources found" in things("get", "things")


def test_selectors_and_output(kubectl: Kubectl) -> None:
    for name in ("s1", "s2"):
        kubectl("create", "-f", "-", stdin=POD.replace("name: web", f"name: {name}"))
    kubectl("label", "pod", "s1", "pick=me")
    assert kubectl("get", "pods", "-l", "pick=me", "-o", "name").split() == ["pod/s1"]
    assert "pod/s2" in kubectl("get", "pods", "--field-selector", "metadata.name=s2", "-o", "name")
    listed = json.loads(kubectl("get", "pods", "-o", "json"))
    assert {item["metadata"]["name"] for item in listed["items"]} >= {"s1", "s2"}
    assert "s1" in kubectl("get", "pods", "-A", "--chunk-size=1")
    kubectl("delete", "pods", "--all")
