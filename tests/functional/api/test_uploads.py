"""Uploads as CDI's clients send them, through virt-api's real server to a real importer; and as an attacker would."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from framework.waiting import eventually
from framework.wsserver import refusal
from functional.api.rig import TOKEN, running
from functional.api.upload_rig import OWNER, Uploading, make_claim, make_pod, noise, uploading
from msgspec.structs import replace

from virt_api.uploads import handlers
from virt_api.uploads.tokens import Tokens
from virt_core.apis.datavolume import KEY_POD_PHASE, KEY_POD_READY, DataVolume
from virt_core.apis.meta import ObjectMeta, OwnerReference
from virt_core.apis.upload import UploadTokenRequest, UploadTokenRequestStatus
from virtctl.imageupload.proxy import Proxy, send
from virtctl.imageupload.send import SendError

MIB = 1 << 20


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Uploading]:
    with uploading(tmp_path, 160 * MIB) as started:
        yield started


@pytest.mark.parametrize("path", ["/v1beta1/upload", "/v1beta1/upload-async", "/v1alpha1/upload"])
def test_a_disk_arrives_byte_for_byte(it: Uploading, path: str) -> None:
    """It is larger than all that virt-api would keep of requests: it is passed on and not kept."""
    disk = noise(100 * MIB)
    token = it.token()
    assert it.send(token, None, path, "HEAD") == (200, "")
    assert it.send(token, disk, path) == (200, f"raw, {len(disk)} bytes")
    assert it.disk() == disk
    assert it.forward.paths == ["/api/v1/namespaces/default/pods/importer-disk/portforward?ports=8190"]
    assert it.forward.headers[0]["Authorization"] == "Bearer secret"
    assert it.rig.client.access[0].spec.resource_attributes.group == "upload.cdi.kubevirt.io"
    assert it.rig.client.access[0].spec.resource_attributes.verb == "create"


def form(name: str, disk: bytes) -> bytes:
    return (
        b"--line\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n"
        b"--line\r\nContent-Disposition: form-data; name=\"" + name.encode() + b"\"; filename=\"d\"\r\n"
        b"Content-Type: application/octet-stream\r\n\r\n" + disk + b"\r\n--line--\r\n"
    )  # fmt: skip


def test_a_disk_in_a_form(it: Uploading) -> None:
    disk, path = noise(5 * MIB), "/v1beta1/upload-form-async"
    headers = {"Authorization": f"Bearer {it.token()}", "Content_Type": "multipart/form-data; boundary=line"}
    code, text = it.ask("POST", path, form("disk", disk), **headers)
    assert (code, text) == (400, "the form has no part 'file'")
    cut = form("file", disk)[: 2 * MIB]
    assert it.ask("POST", path, cut, **headers)[0] in (400, 503)
    assert it.ask("POST", path, form("file", disk), **headers) == (200, f"raw, {len(disk)} bytes")
    assert it.disk() == disk


def test_who_has_no_token_of_ours_is_not_even_read(it: Uploading) -> None:
    good, body = it.token(), b"x" * MIB
    said, _, signature = good.partition(".")
    other = Tokens(lambda: b"another key", it.rig.clock).issue("default", "disk", "claim-uid")
    wrong = ["", "x", said, f"{said}.", f".{signature}", f"{said}A.{signature}", other, "a" * 5000, TOKEN, "\xc3\xa9.x"]
    for method, path in (
        ("POST", "/v1beta1/upload"),
        ("HEAD", "/v1beta1/upload-async"),
        ("POST", "/v1beta1/upload-form"),
    ):
        for bad in wrong:
            code, text = it.send(bad, body if method == "POST" else None, path, method)
            assert code == 401, (bad, text)
    it.rig.clock.step(301)
    assert it.send(good, body)[0] == 401
    assert it.forward.paths == []


def test_who_may_not_ask_gets_no_token(it: Uploading) -> None:
    assert it.request_token(word="unknown")[0] == 401
    it.rig.client.allowed = False
    code, answer = it.request_token()
    assert (code, answer["reason"]) == (403, "Forbidden")
    assert "uploadtokenrequests" in answer["message"]


@pytest.mark.parametrize(
    ("claim", "code", "words"),
    [
        ("none", 404, "there is no claim none"),
        ("", 422, "spec.pvcName"),
        ("../x", 422, "spec.pvcName"),
        ("a/b", 422, "spec.pvcName"),
    ],
)
def test_a_token_is_for_a_claim_that_waits(it: Uploading, claim: str, code: int, words: str) -> None:
    found, answer = it.request_token(claim)
    assert found == code
    assert words in answer["message"]


def test_a_claim_of_somebody_else_or_a_full_one_gets_no_token(it: Uploading) -> None:
    claims = it.rig.client.claims
    claims["disk"] = replace(make_claim(), metadata=replace(make_claim().metadata, owner_references=[]))
    assert it.request_token()[0] == 422
    claims["disk"] = replace(make_claim(), metadata=replace(make_claim().metadata, annotations={}))
    assert it.request_token()[0] == 422
    claims["disk"] = make_claim(**{KEY_POD_PHASE: "Succeeded"})
    assert it.request_token()[0] == 409


def test_a_claim_that_was_there_first_takes_a_disk_by_its_own_data_volume(it: Uploading) -> None:
    claim = replace(make_claim(), metadata=replace(make_claim().metadata, owner_references=[]))
    it.rig.client.claims["disk"] = claim
    meta = ObjectMeta(name="disk", namespace="default", uid=OWNER.uid)
    it.rig.client.volumes["disk"] = DataVolume(metadata=meta)
    assert it.request_token()[0] == 422
    belongs = OwnerReference("v1", "PersistentVolumeClaim", "disk", claim.metadata.uid)
    it.rig.client.volumes["disk"] = DataVolume(metadata=replace(meta, owner_references=[belongs]))
    assert it.send(it.token(), noise(MIB))[0] == 200


def test_a_token_is_not_for_the_next_claim_of_that_name(it: Uploading) -> None:
    token = it.token()
    it.rig.client.claims["disk"] = replace(make_claim(), metadata=replace(make_claim().metadata, uid="another"))
    assert it.send(token, b"x" * MIB)[0] == 404
    assert it.forward.paths == []


def _changed(**changes: Any) -> Any:
    return replace(make_pod(), metadata=replace(make_pod().metadata, **changes))


@pytest.mark.parametrize(
    "pod",
    [
        _changed(labels={}),
        _changed(owner_references=[]),
        _changed(owner_references=[replace(OWNER, uid="another")]),
        replace(make_pod(), status=replace(make_pod().status, phase="Succeeded")),
    ],
)
def test_a_pod_that_only_has_the_name_gets_nothing(it: Uploading, pod: Any) -> None:
    token = it.token()
    it.rig.client.pods["importer-disk"] = pod
    code, text = it.send(token, b"x" * MIB)
    assert code == 503
    assert "is not the importer" in text
    assert it.forward.paths == []


def test_one_claim_takes_one_disk_at_a_time_and_a_cut_one_leaves_room_for_the_next(it: Uploading) -> None:
    token, disk = it.token(), noise(3 * MIB)
    first = it.begin(token, len(disk))
    first.send(disk[:MIB])
    eventually(lambda: it.forward.paths)
    assert it.send(token, disk) == (503, "somebody else is sending a disk for this claim")
    assert first.sock is not None
    first.sock.close()
    first.close()
    eventually(lambda: it.send(token, disk)[0] == 200, within_s=20)
    assert it.disk() == disk


def test_a_silent_sender_is_shown_out(it: Uploading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "SILENCE_S", 0.3)
    sender = it.begin(it.token(), MIB)
    sender.send(b"x" * 1000)
    answer = sender.getresponse()
    assert (answer.status, answer.read()) == (408, b"nothing of the disk came for 0 s")
    sender.close()


def test_what_the_importer_says_is_passed_on(it: Uploading) -> None:
    token = it.token()
    code, text = it.send(token, b"QED\0" + bytes(MIB))
    assert code == 400
    assert "it is a QED file" in text
    code, text = it.send(token, noise(MIB) * 161)
    assert code == 400
    assert "has room for" in text
    assert not (it.claim / "disk.img").exists()


def test_a_refused_way_is_told(it: Uploading) -> None:
    it.forward.answers.append(refusal(403, "virt-api may forward ports of importer Pods only"))
    code, text = it.send(it.token(), b"x" * MIB)
    assert code == 503
    assert "403" in text
    it.forward.to = 9  # Nobody listens there.
    code, text = it.send(it.token(), b"x" * MIB)
    assert code == 503
    assert "cannot be reached" in text


def test_what_has_no_length_or_is_packed_on_the_way_is_refused(it: Uploading) -> None:
    token = it.token()
    headers = {"Authorization": f"Bearer {token}"}
    code, _ = it.ask("POST", "/v1beta1/upload", b"1\r\nx\r\n0\r\n\r\n", Transfer_Encoding="chunked", **headers)
    assert code == 411
    code, text = it.ask("POST", "/v1beta1/upload", b"x" * 100, Content_Encoding="gzip", **headers)
    assert (code, "Content-Encoding" in text) == (415, True)
    assert it.forward.paths == []


def test_an_importer_that_does_not_listen_yet_is_waited_for(it: Uploading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_LOOK_S", 0.05)
    monkeypatch.setattr(handlers, "_READY_S", 0.2)
    token = it.token()
    it.rig.client.claims["disk"] = make_claim(**{KEY_POD_READY: "false"})
    assert it.send(token, b"x" * MIB)[0] == 503


def test_without_importers_nothing_of_it_is_served(tmp_path: Path) -> None:
    with running(tmp_path) as rig:
        connection = http.client.HTTPSConnection("127.0.0.1", rig.port, timeout=10, context=rig.tls())
        connection.request("POST", "/v1beta1/upload", body=b"x")
        assert connection.getresponse().status == 404
        connection.close()


def test_our_own_virtctl_sends_by_the_same_door(it: Uploading, tmp_path: Path) -> None:
    disk, path = noise(3 * MIB), tmp_path / "mine.raw"
    path.write_bytes(disk)

    def create(asked: UploadTokenRequest) -> UploadTokenRequest:
        return replace(asked, status=UploadTokenRequestStatus(token=it.token()))

    cluster: Any = SimpleNamespace(namespace="default", client=SimpleNamespace(create=create))
    for proxy, words in (
        (Proxy(it.rig.url), "is not trusted"),
        (Proxy(it.rig.url.replace("https", "http")), "in the clear"),
        (Proxy("https://127.0.0.1:9"), "refused"),
    ):
        with pytest.raises(SendError, match=words):
            send(cluster, proxy, "disk", path)
    (tmp_path / "bad").write_bytes(b"QED\0" + bytes(40 * MIB))
    with pytest.raises(SendError, match="QED") as refused:
        send(cluster, Proxy(it.rig.url, it.rig.ca.pem.decode()), "disk", tmp_path / "bad")
    assert refused.value.final
    assert send(cluster, Proxy(it.rig.url, it.rig.ca.pem.decode()), "disk", path) == f"raw, {len(disk)} bytes"
    assert it.disk() == disk
