"""What nobody would do for a Service is refused; claims get the default class, and grow if theirs lets them."""

from __future__ import annotations

from typing import Any

import pytest
from framework.stored import FakeSource, admission, meta

from virt_core.apis.names import ANNOTATION_DEFAULT_CLASS
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest
from virt_local.apiserver.security.claim_admission import ClaimClasses
from virt_local.apiserver.security.service_admission import refuse_idle_service, warnings_about

PORTS = [{"port": 22}]


def service(spec: dict[str, Any], old: dict[str, Any] | None = None, namespace: str = "default") -> AdmissionRequest:
    before = {"metadata": meta("door", namespace), "spec": old} if old is not None else None
    return admission(
        "CREATE" if old is None else "UPDATE",
        "services",
        kind="Service",
        obj={"metadata": meta("door", namespace), "spec": {"ports": PORTS, **spec}},
        old=before,
        name="door",
        namespace=namespace,
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"type": "ExternalName", "externalName": "example.org"}, "spec.type ExternalName"),
        ({"externalIPs": ["192.0.2.1"]}, "spec.externalIPs"),
        ({"type": "LoadBalancer", "loadBalancerIP": "192.0.2.1"}, "spec.loadBalancerIP"),
        ({"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"]}, "spec.loadBalancerSourceRanges"),
        ({"ports": [{"port": 22}, {"port": 23, "protocol": "SCTP"}]}, "spec.ports[1].protocol SCTP"),
    ],
)
def test_what_nobody_would_do_is_refused(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.ApiError) as refused:
        refuse_idle_service(service(spec))
    assert refused.value.code == 403
    assert f'services "door" is forbidden: {field}: ' in refused.value.message


def test_what_works_is_kept() -> None:
    refuse_idle_service(service({}))
    refuse_idle_service(service({"clusterIP": "None"}))
    refuse_idle_service(service({"selector": {"vmi.kubevirt.io/id": "guest"}, "type": "NodePort"}))


def test_a_load_balancer_is_kept_with_a_word() -> None:
    asked = service({"type": "LoadBalancer"})
    refuse_idle_service(asked)
    assert "stays pending" in warnings_about(asked)[0]
    assert warnings_about(service({})) == []


def test_one_that_is_there_can_be_changed_but_not_made_worse() -> None:
    outside = {"externalIPs": ["192.0.2.1"]}
    refuse_idle_service(service(outside, old=outside))
    refuse_idle_service(service({}, old=outside))
    with pytest.raises(errors.ApiError):
        refuse_idle_service(service(outside, old={}))


def classed(source: FakeSource, claim: dict[str, Any]) -> Any:
    request = admission(obj=claim, resource="persistentvolumeclaims", kind="PersistentVolumeClaim")
    ClaimClasses(source).complete(request)
    assert request.object is not None
    return request.object["spec"].get("storageClassName")


def source_with(**classes: tuple[str, str]) -> FakeSource:
    source = FakeSource()
    for name, (created, default) in classes.items():
        metadata = {**meta(name), "creationTimestamp": created, "annotations": {ANNOTATION_DEFAULT_CLASS: default}}
        source.put("storageclasses.storage.k8s.io", {"metadata": metadata})
    return source


def test_a_claim_that_names_no_class_gets_the_default_one() -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    source = source_with(old=(old, "true"), young=(new, "true"), other=(new, "false"))
    plain = {"metadata": meta("data", "default")}
    assert classed(source, {**plain, "spec": {}}) == "young"
    assert classed(source, {**plain, "spec": {"storageClassName": "old"}}) == "old"
    assert classed(source, {**plain, "spec": {"storageClassName": ""}}) == "", "none is a choice too"
    beta = {**meta("data", "default"), "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}
    assert classed(source, {"metadata": beta, "spec": {}}) is None
    assert classed(source_with(), {**plain, "spec": {}}) is None


def sized(size: str) -> dict[str, Any]:
    return {"metadata": meta("data"), "spec": {"storageClassName": "c", "resources": {"requests": {"storage": size}}}}


@pytest.mark.parametrize(
    ("allowed", "wanted", "fine"), [(True, "2Gi", True), (None, "2Gi", False), (None, "1Gi", True)]
)
def test_a_claim_grows_if_its_class_lets_it(allowed: bool | None, wanted: str, fine: bool) -> None:
    source = FakeSource()
    source.put("storageclasses.storage.k8s.io", {"metadata": meta("c"), "allowVolumeExpansion": allowed})
    kind = {"kind": "PersistentVolumeClaim", "obj": sized(wanted), "old": sized("1Gi")}
    request = admission("UPDATE", "persistentvolumeclaims", name="data", namespace="default", **kind)
    if fine:
        ClaimClasses(source).check_growth(request)
        return
    with pytest.raises(errors.ApiError, match="must support resize"):
        ClaimClasses(source).check_growth(request)
