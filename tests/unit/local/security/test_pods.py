"""What a new Pod gets, and what a namespace's security level refuses."""

from __future__ import annotations

from typing import Any

import pytest
from framework.stored import FakeSource, admission, meta

from virt_local.apiserver import errors
from virt_local.apiserver.security.pod_admission import TOKEN_DIR, complete_pod
from virt_local.apiserver.security.pod_security import check_pod, enforce

GOOD: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 107, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "compute",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            },
        }
    ],
    "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "image": {"reference": "x"}}],
}


def source_with(**account: Any) -> FakeSource:
    source = FakeSource()
    source.put("serviceaccounts", {"metadata": meta("default", "default"), **account})
    return source


def completed(source: FakeSource, **spec: Any) -> dict[str, Any]:
    request = admission(obj={"metadata": meta("p", "default"), "spec": {"containers": [{"name": "c"}], **spec}})
    complete_pod(source, request)
    assert request.object is not None
    made: dict[str, Any] = request.object["spec"]
    return made


def test_the_default_account_and_its_token() -> None:
    spec = completed(source_with())
    assert spec["serviceAccountName"] == "default"
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == TOKEN_DIR
    assert mount["readOnly"]
    assert spec["volumes"][0]["name"] == mount["name"]
    assert "serviceAccountToken" in spec["volumes"][0]["projected"]["sources"][0]


@pytest.mark.parametrize(
    ("account", "spec", "mounted"),
    [
        ({}, {"automountServiceAccountToken": False}, False),
        ({"automountServiceAccountToken": False}, {}, False),
        ({"automountServiceAccountToken": False}, {"automountServiceAccountToken": True}, True),
    ],
)
def test_automount_is_decided_by_the_pod_then_by_the_account(
    account: dict[str, Any], spec: dict[str, Any], mounted: bool
) -> None:
    assert bool(completed(source_with(**account), **spec).get("volumes")) is mounted


def test_a_missing_account_is_refused() -> None:
    with pytest.raises(errors.ApiError, match='serviceaccount "robot" not found'):
        completed(source_with(), serviceAccountName="robot")


def test_priority_comes_from_the_class() -> None:
    source = source_with()
    source.put("priorityclasses.scheduling.k8s.io", {"metadata": meta("high"), "value": 1000})
    assert completed(source)["priority"] == 0
    assert completed(source, priorityClassName="high")["priority"] == 1000
    assert completed(source, priorityClassName="system-node-critical")["priority"] == 2_000_001_000
    with pytest.raises(errors.ApiError, match="no PriorityClass"):
        completed(source, priorityClassName="absent")
    with pytest.raises(errors.ApiError, match="must not be provided"):
        completed(source, priorityClassName="high", priority=5)


def test_the_global_default_priority() -> None:
    source = source_with()
    source.put("priorityclasses.scheduling.k8s.io", {"metadata": meta("d"), "value": 7, "globalDefault": True})
    spec = completed(source)
    assert (spec["priority"], spec["priorityClassName"]) == (7, "d")


def test_tolerations_are_added_once() -> None:
    spec = completed(source_with())
    assert {each["key"] for each in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    assert len(completed(source_with(), tolerations=[{"operator": "Exists"}])["tolerations"]) == 1


def test_the_launcher_pod_fits_restricted() -> None:
    assert check_pod("restricted", GOOD) == []


def changed(**changes: Any) -> dict[str, Any]:
    container = {**GOOD["containers"][0], **changes.pop("container", {})}
    return {**GOOD, "containers": [container], **changes}


@pytest.mark.parametrize(
    ("level", "spec", "told"),
    [
        ("baseline", changed(hostNetwork=True), "hostNetwork=true"),
        ("baseline", changed(volumes=[{"name": "h", "hostPath": {"path": "/"}}]), 'hostPath volumes (volume "h")'),
        ("baseline", changed(container={"securityContext": {"privileged": True}}), "privileged"),
        ("baseline", changed(container={"ports": [{"hostPort": 80}]}), "hostPort"),
        ("baseline", changed(container={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}), "SYS_ADMIN"),
        ("restricted", changed(container={"securityContext": {}}), "allowPrivilegeEscalation != false"),
        ("restricted", changed(container={"securityContext": {}}), 'capabilities.drop=["ALL"]'),
        ("restricted", changed(securityContext={"seccompProfile": {"type": "RuntimeDefault"}}), "runAsNonRoot != true"),
        ("restricted", changed(securityContext={"runAsNonRoot": True}), "seccompProfile"),
        ("restricted", changed(volumes=[{"name": "n", "nfs": {}}]), 'restricted volume type "nfs"'),
        ("restricted", changed(initContainers=[{"name": "i"}]), '"i"'),
        (
            "restricted",
            changed(securityContext={**GOOD["securityContext"], "runAsUser": 0}),
            "pod must not set runAsUser=0",
        ),
    ],
)
def test_each_check_says_what_is_wrong(level: str, spec: dict[str, Any], told: str) -> None:
    assert told in ", ".join(check_pod(level, spec))


def test_enforce_refuses_and_warn_warns() -> None:
    bad = {"spec": changed(hostNetwork=True)}
    request = admission(obj=bad)
    enforce({"pod-security.kubernetes.io/warn": "baseline"}, request)
    assert 'would violate PodSecurity "baseline:latest"' in request.warnings[0]
    with pytest.raises(errors.ApiError) as caught:
        enforce({"pod-security.kubernetes.io/enforce": "restricted"}, admission(obj=bad))
    assert caught.value.code == 403
    assert 'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)' in caught.value.message
    enforce({}, admission(obj=bad))
