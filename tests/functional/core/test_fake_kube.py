"""FakeKube, which the unit tests rest on, gives the same answers as a real API server to the same requests.

Each script runs on both; what it returns is compared. UIDs, times and versions differ by nature, so scripts tell only
whether they are there and whether they changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from framework.fake_kube import FakeKube
from functional.core.servers import Server, VirtLocal

from virt_core import manifests
from virt_core.apis.base import from_plain
from virt_core.apis.config import ConfigMap
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Namespace
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube import errors
from virt_core.kube.client import KubeClient
from virt_core.kube.patch import ApplyPatch, JsonPatch, MergePatch, op

SPACE = "default"
Seen = list[Any]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = VirtLocal(tmp_path_factory.mktemp("virt-local"))
    yield server
    server.down()


@pytest.fixture
def fake() -> Iterator[Server]:
    server = FakeKube()
    yield server
    server.down()


def refused(call: Callable[[], object]) -> tuple[str, int, str]:
    with pytest.raises(errors.ApiError) as caught:
        call()
    return type(caught.value).__name__, caught.value.status, caught.value.reason


def config(name: str, labels: dict[str, str] | None = None, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=SPACE, labels=labels or {}), data=data)


def vm(name: str, **fields: Any) -> VirtualMachine:
    template = {"spec": {"domain": {"devices": {}}}}
    given = {"metadata": {"name": name, "namespace": SPACE}, "spec": {"runStrategy": "Halted", "template": template}}
    return from_plain({**given, **fields}, VirtualMachine)


def conflicts(client: KubeClient) -> Seen:
    made = client.create(config("a", x="1"))
    seen: Seen = [bool(made.metadata.uid), bool(made.metadata.creation_timestamp), made.metadata.generation]
    seen.append(refused(lambda: client.create(config("a"))))
    same = client.patch(ConfigMap, "a", SPACE, MergePatch({"data": {"x": "1"}}))
    seen.append(("nothing changes", same.metadata.resource_version == made.metadata.resource_version))
    changed = client.patch(ConfigMap, "a", SPACE, MergePatch({"data": {"x": None, "y": "2"}}))
    seen.append((changed.data, changed.metadata.resource_version == made.metadata.resource_version))
    seen.append(refused(lambda: client.replace(made)))
    stale = op.test("/metadata/resourceVersion", made.metadata.resource_version)
    seen.append(refused(lambda: client.patch(ConfigMap, "a", SPACE, JsonPatch([stale, op.add("/data/z", "3")]))))
    seen.append(refused(lambda: client.patch(ConfigMap, "a", SPACE, JsonPatch([op.remove("/data/none")]))))
    old = MergePatch({"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"z": "3"}})
    seen.append(refused(lambda: client.patch(ConfigMap, "a", SPACE, old)))
    seen.append(client.replace(config_from(changed, z="3")).data)
    seen.append(refused(lambda: client.delete(ConfigMap, "a", SPACE, uid="another")))
    seen.append(refused(lambda: client.delete(ConfigMap, "a", SPACE, resource_version=made.metadata.resource_version)))
    client.delete(ConfigMap, "a", SPACE, uid=made.metadata.uid)
    seen.append(refused(lambda: client.get(ConfigMap, "a", SPACE)))
    seen.append(refused(lambda: client.delete(ConfigMap, "a", SPACE)))
    seen.append(refused(lambda: client.patch(ConfigMap, "a", SPACE, MergePatch({"data": {"x": "1"}}))))
    again = client.create(config("a"))
    return [*seen, again.metadata.uid == made.metadata.uid]


def config_from(found: ConfigMap, **data: str) -> ConfigMap:
    return ConfigMap(metadata=found.metadata, data=data)


def messages(client: KubeClient) -> Seen:
    """What users and our own code read."""
    client.create(config("m"))
    seen: Seen = []
    calls: list[Callable[[], object]] = [
        lambda: client.get(ConfigMap, "none", SPACE),
        lambda: client.get(VirtualMachine, "none", SPACE),
        lambda: client.create(config("m")),
    ]
    for call in calls:
        with pytest.raises(errors.ApiError) as caught:
            call()
        seen.append(caught.value.message)
    return seen


def names_and_dry_runs(client: KubeClient) -> Seen:
    made = client.create(ConfigMap(metadata=ObjectMeta(generate_name="g-", namespace=SPACE)))
    other = client.create(ConfigMap(metadata=ObjectMeta(generate_name="g-", namespace=SPACE)))
    seen: Seen = [made.metadata.name.startswith("g-"), made.metadata.name != other.metadata.name]
    tried = client.create(config("dry"), dry_run=True)
    return [*seen, tried.metadata.name, refused(lambda: client.get(ConfigMap, "dry", SPACE))]


def selectors(client: KubeClient) -> Seen:
    for name, labels in (("c", {"tier": "web"}), ("a", {"tier": "db", "old": "yes"}), ("b", {})):
        client.create(config(f"s-{name}", labels))
    asked = ("tier=web", "tier==db", "tier!=web", "tier", "!tier", "tier in (web,db)", "tier notin (web),old", "old=no")
    seen: Seen = [
        [
            o.metadata.name
            for o in client.list(ConfigMap, SPACE, label_selector=text).items
            if o.metadata.name[:2] == "s-"
        ]
        for text in asked
    ]
    for text in ("metadata.name=s-a", "metadata.name!=s-a,metadata.name!=s-b"):
        found = client.list(ConfigMap, SPACE, field_selector=text).items
        seen.append([o.metadata.name for o in found if o.metadata.name[:2] == "s-"])
    pages = client.list(ConfigMap, SPACE, limit=2).items
    return [*seen, [o.metadata.name for o in pages] == sorted(o.metadata.name for o in pages)]


def status_is_apart(client: KubeClient) -> Seen:
    """A VM's status is written by its subresource only, and does not raise the generation."""
    made = client.create(vm("v", status={"ready": True}))
    seen: Seen = [made.metadata.generation, made.status.ready]
    told = client.patch(VirtualMachine, "v", SPACE, MergePatch({"status": {"ready": True}}), subresource="status")
    seen.append((told.metadata.generation, told.status.ready))
    both = {"status": {"ready": False}, "spec": {"runStrategy": "Always"}}
    spec = client.patch(VirtualMachine, "v", SPACE, MergePatch(both))
    seen.append((spec.metadata.generation, spec.status.ready, spec.spec.run_strategy))
    status = client.patch(
        VirtualMachine,
        "v",
        SPACE,
        MergePatch({"status": {"created": True}, "spec": {"runStrategy": "Manual"}}),
        subresource="status",
    )
    seen.append((status.metadata.generation, status.status.created, status.spec.run_strategy))
    labelled = client.patch(VirtualMachine, "v", SPACE, MergePatch({"metadata": {"labels": {"a": "b"}}}))
    seen.append((labelled.metadata.generation, labelled.metadata.labels))
    bare = client.patch(VirtualMachine, "v", SPACE, JsonPatch([op.remove("/status/ready")]), subresource="status")
    return [*seen, (bare.status.ready, bare.status.created)]


def status_is_a_part(client: KubeClient) -> Seen:
    """A VMI's status and metadata are written together."""
    given = {
        "metadata": {"name": "i", "namespace": SPACE},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Pending"},
    }
    made = client.create(from_plain(given, VirtualMachineInstance))
    both = MergePatch({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Scheduling"}})
    told = client.patch(VirtualMachineInstance, "i", SPACE, both)
    return [made.status.phase, told.status.phase, told.metadata.labels]


def finalizers(client: KubeClient) -> Seen:
    made = client.create(vm("f", metadata={"name": "f", "namespace": SPACE, "finalizers": ["x.io/one", "x.io/two"]}))
    client.delete(VirtualMachine, "f", SPACE)
    held = client.get(VirtualMachine, "f", SPACE)
    seen: Seen = [bool(held.metadata.deletion_timestamp), held.metadata.finalizers]
    seen.append(held.metadata.generation - made.metadata.generation)
    client.delete(VirtualMachine, "f", SPACE)
    again = client.get(VirtualMachine, "f", SPACE)
    seen.append(again.metadata.resource_version == held.metadata.resource_version)
    one = client.patch(VirtualMachine, "f", SPACE, JsonPatch([op.replace("/metadata/finalizers", ["x.io/two"])]))
    seen.append(one.metadata.finalizers)
    client.patch(VirtualMachine, "f", SPACE, MergePatch({"metadata": {"finalizers": None}}))
    return [*seen, refused(lambda: client.get(VirtualMachine, "f", SPACE))]


def watching(client: KubeClient) -> Seen:
    """An object that begins or ceases to match is told as one that comes or goes."""
    begin = client.list(ConfigMap, SPACE).resource_version
    client.create(config("w-in", {"w": "yes"}))
    client.create(config("w-out", {"w": "no"}))
    client.patch(ConfigMap, "w-in", SPACE, MergePatch({"data": {"x": "1"}}))
    client.patch(ConfigMap, "w-in", SPACE, MergePatch({"data": {"x": "1"}}))
    client.patch(ConfigMap, "w-out", SPACE, MergePatch({"metadata": {"labels": {"w": "yes"}}}))
    client.patch(ConfigMap, "w-in", SPACE, MergePatch({"metadata": {"labels": {"w": None}}}))
    client.delete(ConfigMap, "w-out", SPACE)
    watch = client.watch(ConfigMap, SPACE, resource_version=begin, label_selector="w=yes", timeout_s=20)
    events = (event for event in watch if event.type != "BOOKMARK")
    found = [(event.type, event.object.metadata.name if event.object else "") for event in islice(events, 5)]
    watch.close()
    return found


def applied(client: KubeClient) -> Seen:
    def apply(data: dict[str, str]) -> ConfigMap:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "p", "namespace": SPACE},
            "data": data,
        }
        return client.patch(ConfigMap, "p", SPACE, ApplyPatch(document, "test"))

    return [apply({"a": "1"}).data, apply({"a": "2"}).data]


SCRIPTS = (
    conflicts,
    messages,
    names_and_dry_runs,
    selectors,
    status_is_apart,
    status_is_a_part,
    finalizers,
    watching,
    applied,
)


def _prepared(server: Server) -> KubeClient:
    client = server.client()
    try:
        client.create(Namespace(metadata=ObjectMeta(name=SPACE)))
    except errors.AlreadyExists:
        pass
    return client


def _install(client: KubeClient) -> None:
    for name in ("virtualmachines", "virtualmachineinstances"):
        (definition,) = manifests.load(f"crds/{name}.yaml")
        try:
            client.raw(
                "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=json.dumps(definition).encode()
            )
        except errors.AlreadyExists:
            return


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_fake_answers_as_the_real_one(script: Callable[[KubeClient], Seen], real: Server, fake: Server) -> None:
    theirs = _prepared(real)
    _install(theirs)
    expected = script(theirs)
    assert script(_prepared(fake)) == expected
