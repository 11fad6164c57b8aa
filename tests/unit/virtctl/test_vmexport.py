"""`virtctl vmexport` and `memory-dump download` against a fake API server: what they make, refuse and say."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from framework.fake_kube import FakeKube

EXPORTS = "/apis/export.kubevirt.io/v1/namespaces/default/virtualmachineexports"
SECRETS = "/api/v1/namespaces/default/secrets"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"

Run = Callable[..., Result]


def export(phase: str, reason: str, message: str, kind: str = "VirtualMachine") -> dict[str, Any]:
    condition = {"type": "Ready", "status": "False", "reason": reason, "message": message}
    return {
        "metadata": {},
        "spec": {"source": {"kind": kind, "name": "web"}},
        "status": {"phase": phase, "conditions": [condition], "ttlExpirationTime": "2026-01-01T02:00:00Z"},
    }


def test_create_makes_the_export_and_a_token_that_goes_with_it(run: Run, kube: FakeKube) -> None:
    labels = ("--labels", "a=b,c=d", "--annotations", "e=f", "--ttl", "30m")
    done = run("vmexport", "create", "out", "--vm", "web", *labels)
    assert done.exit_code == 0, done.output
    made, secret = kube.objects[f"{EXPORTS}/out"], kube.objects[f"{SECRETS}/secret-out"]
    assert made["spec"] == {
        "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"},
        "tokenSecretRef": "secret-out",
        "ttlDuration": "30m",
    }
    assert (made["metadata"]["labels"], made["metadata"]["annotations"]) == ({"a": "b", "c": "d"}, {"e": "f"})
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("VirtualMachineExport", made["metadata"]["uid"])
    assert not owner.get("blockOwnerDeletion")
    assert len(secret["stringData"]["token"]) == 20
    again = run("vmexport", "create", "out", "--vm", "web")
    assert again.exit_code == 1
    assert "already exists" in again.output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("create", "out"), "--vm, --snapshot and --pvc"),
        (("create", "out", "--vm", "a", "--pvc", "b"), "one of"),
        (("create", "out", "--vm", "a", "--output", "x"), "No such option"),
        (("delete", "out", "--vm", "a"), "No such option"),
        (("create", "out", "--vm", "a", "--labels", "x"), "KEY=VALUE"),
        (("download", "out"), "--output is needed"),
        (("download", "out", "--manifest", "--volume", "a"), "--manifest"),
        (("download", "out", "--manifest", "--pvc", "a"), "--manifest"),
        (("download", "out", "--output", "x", "--keep-vme", "--delete-vme"), "opposites"),
        (("download", "out", "--output", "x", "--readiness-timeout", "soon"), "--readiness-timeout"),
        (("download", "out", "--output", "x", "--ttl", "1h"), "--ttl"),
    ],
)
def test_what_does_not_go_together_is_refused(run: Run, kube: FakeKube, args: tuple[str, ...], said: str) -> None:
    done = run("vmexport", *args)
    assert (done.exit_code, said in done.output) == (1, True), done.output
    assert kube.methods("POST", "DELETE") == []


def test_a_download_says_why_it_cannot_be(run: Run, kube: FakeKube) -> None:
    kube.put(f"{EXPORTS}/out", export("Skipped", "VMNoVolumes", "VirtualMachine web has no volume that is kept"))
    done = run("vmexport", "download", "out", "--output", "x")
    assert (done.exit_code, "has no volume that is kept" in done.output) == (1, True), done.output
    kube.put(f"{EXPORTS}/out", export("Pending", "InUse", "Virtual Machine default/web is running"))
    done = run("vmexport", "download", "out", "--output", "x", "--readiness-timeout", "100ms")
    assert (done.exit_code, "is running" in done.output) == (1, True), done.output


def test_an_export_that_was_made_for_a_download_goes_with_it(run: Run, kube: FakeKube) -> None:
    for flags, kept in (((), False), (("--keep-vme",), True)):
        short = ("--output", "x", "--readiness-timeout", "100ms", *flags)
        assert run("vmexport", "download", "out", "--pvc", "disk", *short).exit_code == 1
        assert (f"{EXPORTS}/out" in kube.objects) is kept
    # One that was there is used and stays.
    assert run("vmexport", "download", "out", "--pvc", "disk", "--output", "x", "--readiness-timeout", "1ms").exit_code
    assert f"{EXPORTS}/out" in kube.objects


def test_a_missing_one_is_deleted_already(run: Run) -> None:
    done = run("vmexport", "delete", "out")
    assert (done.exit_code, "does not exist" in done.output) == (0, True)


@pytest.mark.parametrize(
    ("found", "said", "following"),
    [
        (export("Pending", "InUse", "Virtual Machine default/web is running"), "is running", "virtctl stop web"),
        (export("Pending", "PodPending", "no node has room"), "no node has room", "kubectl describe vmexport out"),
        (export("Skipped", "VMNoVolumes", "nothing"), "is Skipped: nothing", "kubectl describe vmexport out"),
        (export("Ready", "PodReady", ""), "can be downloaded until", "virtctl vmexport download out"),
    ],
)
def test_explain_says_where_it_stands(run: Run, kube: FakeKube, found: Any, said: str, following: str) -> None:
    kube.put(f"{EXPORTS}/out", found)
    for words in (("vmexport", "out"), ("vmexport/out",), ("virtualmachineexports", "out")):
        done = run("explain", *words)
        assert done.exit_code == 0, done.output
        assert said in done.output
        assert f"Next: {following}" in done.output


def test_a_dump_that_is_not_there_is_not_downloaded(run: Run, kube: FakeKube) -> None:
    kube.put(f"{VMS}/web", {"metadata": {}, "spec": {}, "status": {}})
    done = run("memory-dump", "download", "web", "--output", "x")
    assert (done.exit_code, "has no memory dump" in done.output) == (1, True)
    request = {"claimName": "c", "phase": "Failed", "message": "no space"}
    kube.put(f"{VMS}/web", {"metadata": {}, "spec": {}, "status": {"memoryDumpRequest": request}})
    assert "no space" in run("memory-dump", "download", "web", "--output", "x").output


def test_a_secret_without_a_token_is_named(run: Run, kube: FakeKube) -> None:
    found = export("Ready", "PodReady", "")
    found["status"] |= {
        "tokenSecretRef": "mine",
        "links": {"internal": {"cert": "", "volumes": [{"name": "d", "formats": [{"format": "gzip", "url": "u"}]}]}},
    }
    kube.put(f"{EXPORTS}/out", found)
    kube.put(f"{SECRETS}/mine", {"metadata": {}, "data": {"other": base64.b64encode(b"x").decode()}})
    done = run("vmexport", "download", "out", "--output", "x")
    assert (done.exit_code, "Secret mine has no key token" in done.output) == (1, True), done.output
