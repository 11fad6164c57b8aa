"""What a stranger in the cluster says in the API server's name, or in virt-controller's, is not believed."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
import uuid
from typing import Any

import pytest

from .conftest import Space
from .engine import Engine
from .manifests import vmi

pytestmark = pytest.mark.e2e

INSTALLED = "virtpod"


def virt_api(engine: Engine) -> str:
    """Where virt-api listens, as everybody in the cluster can reach it."""
    for piece in engine.get("-n", INSTALLED, "endpointslices", "-l", "kubernetes.io/service-name=virt-api")["items"]:
        port = next(entry["port"] for entry in piece["ports"] if entry["name"] == "https")
        for endpoint in piece.get("endpoints") or ():
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
