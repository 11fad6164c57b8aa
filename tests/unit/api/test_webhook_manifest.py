"""The webhook configurations and the webhooks that are served belong together; lookups stay within their bounds."""

from __future__ import annotations

from typing import Any

import pytest
from unit.api.fakecluster import meta
from unit.api.reviews import HOOKS

from virt_api.admission.causes import Denied
from virt_api.admission.cluster import KubeCluster
from virt_api.admission.routes import ASKING
from virt_api.subresources.discovery import REVIEWS
from virt_core import manifests
from virt_core.apis.crdkinds import KINDS
from virt_core.apis.preset import VirtualMachineInstancePreset
from virt_core.apis.registry import resource_by_kind
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError, NotFound

CONFIGURED = [hook for document in manifests.load("webhooks.yaml") for hook in document["webhooks"]]


def test_every_webhook_is_served_and_every_one_served_is_configured() -> None:
    services = [hook["clientConfig"]["service"] for hook in CONFIGURED]
    assert sorted(service["path"] for service in services) == sorted(f"{REVIEWS}{path}" for path in HOOKS)
    assert set(ASKING) <= set(HOOKS)


def test_the_api_server_asks_by_way_of_itself() -> None:
    """Only then virt-api can know that it is the API server who asks."""
    for hook in CONFIGURED:
        service = hook["clientConfig"]["service"]
        assert (service["namespace"], service["name"], service["port"]) == ("default", "kubernetes", 443)
        assert "caBundle" not in hook["clientConfig"]


@pytest.mark.parametrize("hook", CONFIGURED, ids=lambda hook: hook["name"])
def test_a_webhook_is_configured_as_the_reference_says(hook: dict[str, Any]) -> None:
    assert (hook["failurePolicy"], hook["timeoutSeconds"], hook["admissionReviewVersions"]) == ("Fail", 10, ["v1"])
    evictions = hook["name"].startswith("pod-evictions")
    assert hook["sideEffects"] == ("NoneOnDryRun" if evictions else "None")
    conditions = [condition["name"] for condition in hook.get("matchConditions", [])]
    # Evictions of other people's Pods pass us by, and so does who only takes a finalizer off.
    assert conditions == ["launchers-and-their-disks"] if evictions else conditions in ([], ["more-than-finalizers"])


def test_rules_name_all_versions_and_the_scope_of_their_kinds() -> None:
    kinds = {resource_by_kind(kind.kind).plural: kind for kind in KINDS}
    for hook in CONFIGURED:
        for rule in hook["rules"]:
            for name in rule["resources"]:
                if name == "pods/eviction":
                    continue
                kind = kinds[name.partition("/")[0]]
                resource = resource_by_kind(kind.kind)
                assert rule["apiGroups"] == [resource.group]
                assert set(rule["apiVersions"]) == {version.name for version in kind.versions}
                assert rule["scope"] == ("Namespaced" if resource.namespaced else "Cluster")


class Client:
    """Answers with an error, or with nothing."""

    def __init__(self, error: ApiError | None = None) -> None:
        self.error = error
        self.asked: list[str] = []

    def get(self, _cls: Any, name: str, _namespace: str = "") -> Any:
        self.asked.append(name)
        if self.error:
            raise self.error
        return VirtualMachineInstance(metadata=meta(name))


@pytest.mark.parametrize("name", ["", "../../nodes/n1", "a/b", "a?b=c", "A", "x" * 300])
def test_a_name_that_no_object_can_have_never_becomes_a_path(name: str) -> None:
    client = Client()
    assert KubeCluster(client).get(VirtualMachineInstance, name, "default") is None
    assert KubeCluster(client).get(VirtualMachineInstance, "good", f"{name}/x") is None
    assert not client.asked


def test_what_is_not_there_is_none_and_a_failure_is_a_failure() -> None:
    assert KubeCluster(Client()).get(VirtualMachineInstance, "m", "default") is not None
    missing = Client(NotFound(404, "NotFound", "no"))
    assert KubeCluster(missing).get(VirtualMachineInstance, "m", "default") is None
    broken = Client(ApiError(503, "ServiceUnavailable", "down"))
    with pytest.raises(Denied) as denied:
        KubeCluster(broken).get(VirtualMachineInstance, "m", "default")
    assert denied.value.code == 500


class Presets:
    def has_synced(self) -> bool:
        return True

    def list(self) -> Any:
        return [VirtualMachineInstancePreset(metadata=meta("a", ns)) for ns in ("default", "other")]


def test_presets_come_from_the_cache_and_from_one_namespace() -> None:
    found = KubeCluster(Client(), Presets()).presets("default")
    assert [preset.metadata.namespace for preset in found] == ["default"]
