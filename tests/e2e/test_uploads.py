"""Disks that clients of CDI send: a token, a HEAD, a POST. Where $GO_VIRTCTL names KubeVirt's own, that one too."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .conftest import Space
from .engine import VirtLocal, eventually
from .manifests import vmi
from .test_datavolumes import boots, data_volume, from_volume, importer, phase, qcow2, status

__all__ = ["importer", "qcow2"]

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

ASYNC = "/v1beta1/upload-async"


@pytest.fixture
def proxy(space: Space) -> str:
    """Where virt-controller says that disks are sent to; an administrator need not have named it on a cluster."""

    def said() -> str:
        path = "jsonpath={.status.uploadProxyURL}"
        return space.engine.run("kubectl", "get", "cdiconfig", "config", "-o", path).stdout

    if isinstance(space.engine, VirtLocal):
        return eventually(said, within_s=60, what="where disks are sent to")
    return said() or pytest.skip("the cluster names no upload proxy")


def token(space: Space, claim: str, *, as_user: str = "") -> str:
    asked = {
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1",
        "kind": "UploadTokenRequest",
        "metadata": {"generateName": "token-for-virtctl-"},
        "spec": {"pvcName": claim},
    }
    other = (f"--as={as_user}",) if as_user else ()
    done = space.kubectl("create", "-f", "-", "-o", "json", *other, stdin=json.dumps(asked))
    return str(json.loads(done)["status"]["token"])


def send(url: str, method: str, path: str, word: str, body: bytes = b"") -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=120, context=ssl._create_unverified_context()
    )
    headers = {"Authorization": f"Bearer {word}", "Content-Type": "application/octet-stream"}
    try:
        connection.request(method, path, body=body or None, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def waiting(space: Space, name: str) -> None:
    space.apply(data_volume(name, {"upload": {}}, contentType="kubevirt"))
    phase(space, name, "UploadReady")


def test_a_disk_that_is_sent_as_go_does_boots(space: Space, proxy: str, qcow2: bytes) -> None:
    waiting(space, "sent")
    claim = space.engine.get("-n", space.namespace, "pvc", "sent")
    assert claim["metadata"]["annotations"]["cdi.kubevirt.io/storage.upload.target"] == ""
    assert claim["metadata"]["annotations"]["cdi.kubevirt.io/storage.pod.ready"] == "true"
    word = token(space, "sent")
    assert send(proxy, "HEAD", ASYNC, word)[0] == 200
    code, text = send(proxy, "POST", ASYNC, word, qcow2)
    assert (code, text.partition(",")[0]) == (200, "qcow2")
    phase(space, "sent", "Succeeded")
    space.apply(from_volume(vmi("guest"), "sent"))
    boots(space, "guest")


def test_who_may_not_gets_no_token_and_sends_nothing(space: Space, proxy: str) -> None:
    """A viewer, a stranger with a token of the API server's, and one with a token for another claim."""
    waiting(space, "closed")
    space.kubectl("create", "serviceaccount", "viewer")
    space.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", f"--serviceaccount={space.namespace}:viewer")
    user = f"system:serviceaccount:{space.namespace}:viewer"
    with pytest.raises(AssertionError, match="forbidden"):
        token(space, "closed", as_user=user)
    own = space.kubectl("create", "token", "viewer").strip()
    for word in ("", "x.y", own):
        assert send(proxy, "POST", ASYNC, word, b"x" * 4096)[0] == 401
    space.kubectl("create", "rolebinding", "editor", "--clusterrole=edit", f"--serviceaccount={space.namespace}:viewer")
    assert token(space, "closed", as_user=user)
    assert status(space, "closed")["phase"] == "UploadReady"


@pytest.mark.parametrize("kind", ["dv", "pvc"])
def test_gos_own_virtctl(space: Space, proxy: str, qcow2: bytes, tmp_path: Path, kind: str) -> None:
    """Unchanged, as it comes from KubeVirt."""
    del proxy
    program = os.environ.get("GO_VIRTCTL", "")
    if not program:
        pytest.skip("$GO_VIRTCTL names no virtctl of KubeVirt")
    disk = tmp_path / "mine.qcow2"
    disk.write_bytes(qcow2)
    go = (program, "-n", space.namespace, "image-upload", kind, "mine", f"--image-path={disk}")
    done = space.engine.run(*go, "--size=300Mi", "--insecure", timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "completed successfully" in done.stdout
    phase(space, "mine", "Succeeded")
    again = space.engine.run(*go, "--size=300Mi", "--insecure", timeout=60)
    assert again.returncode != 0
    assert "already successfully imported" in again.stderr
    space.apply(from_volume(vmi("guest"), "mine"))
    boots(space, "guest")


def test_a_claim_that_was_there_first_is_filled_and_stays_its_own(space: Space, proxy: str, qcow2: bytes) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "300Mi"}}}
    meta = {"name": "first", "annotations": {"cdi.kubevirt.io/storage.upload.target": ""}}
    space.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    phase(space, "first", "UploadReady")
    assert send(proxy, "POST", ASYNC, token(space, "first"), qcow2)[0] == 200
    phase(space, "first", "Succeeded")
    claim = space.engine.get("-n", space.namespace, "pvc", "first")["metadata"]
    assert "ownerReferences" not in claim
    assert claim["annotations"]["cdi.kubevirt.io/storage.pod.phase"] == "Succeeded"
    space.kubectl("delete", "pvc", "first", "--timeout=60s", timeout=90)
    space.gone("datavolumes")
