"""Whatever arrives, the answer is a verdict: no crash, no 500."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import HOOKS, ON_CREATE, hooks, review, vm, vmi

from virt_core.apis.storage import PersistentVolumeClaim

SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 40), 1 << 40) | st.floats(allow_nan=False) | st.text(max_size=8)
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
VM_SOURCE = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "v"}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
DV = {"metadata": {"name": "dv"}, "spec": {"storage": {}, "sourceRef": {"kind": "DataSource", "name": "x"}}}
#: kind → a spec with much in it
SPECS: dict[str, dict[str, Any]] = {
    "VirtualMachineInstance": vmi()["spec"],
    "VirtualMachine": vm(dataVolumeTemplates=[DV], preference={"inferFromVolume": "d0"})["spec"],
    "VirtualMachineInstanceReplicaSet": {"selector": SELECTOR, "template": vm()["spec"]["template"]},
    "VirtualMachinePool": {"selector": SELECTOR, "virtualMachineTemplate": {"spec": vm()["spec"]}, "maxUnavailable": 1},
    "VirtualMachineInstancePreset": {"selector": SELECTOR, "domain": vmi()["spec"]["domain"]},
    "VirtualMachineInstanceMigration": {"vmiName": "v", "sendTo": {"migrationID": "a", "connectURL": "u"}},
    "VirtualMachineInstancetype": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}},
    "VirtualMachinePreference": {"cpu": {"spreadOptions": {"ratio": 2}}, "requirements": {"memory": {"guest": "1"}}},
    "MigrationPolicy": {"selectors": {"namespaceSelector": {"a": "b"}}, "bandwidthPerMigration": "1Mi"},
    "KubeVirt": {"configuration": {"developerConfiguration": {"logVerbosity": {"virtAPI": 1}}, "migrations": {}}},
    "VirtualMachineClone": {"source": VM_SOURCE, "patches": ["{}"], "newMacAddresses": {"a": "b"}},
    "VirtualMachineSnapshot": {"source": VM_SOURCE, "failureDeadline": "1m"},
    "VirtualMachineRestore": {"target": VM_SOURCE, "virtualMachineSnapshotName": "s", "patches": ["{}"]},
    "VirtualMachineExport": {"source": VM_SOURCE},
}
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    found = [path] if path else []
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        found += places(child, (*path, key))
    return found


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(document)
    node = result
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return result


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """An object with something else in up to three places."""
    kind = draw(st.sampled_from(sorted(SPECS)))
    obj: dict[str, Any] = {
        "apiVersion": "x/v1",
        "kind": kind,
        "metadata": {"name": "t", "namespace": "default", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": SPECS[kind],
    }
    for _ in range(draw(st.integers(1, 3))):
        spots = places({key: obj[key] for key in ("metadata", "spec") if key in obj})
        obj = put(obj, draw(st.sampled_from(spots)), draw(ANYTHING))
        if not isinstance(obj.get("metadata"), dict):
            obj["metadata"] = {}
    return obj


def judged(response: dict[str, Any]) -> bool:
    return bool(response["allowed"]) or response["status"]["code"] in (400, 422, 429)


CLUSTER = FakeCluster(PersistentVolumeClaim(metadata=meta("c")), documents={("DataSource", "x"): {"metadata": {}}})
USING = hooks(CLUSTER)


@SLOW
@given(damaged())
def test_every_create_is_judged(obj: dict[str, Any]) -> None:
    for path in ON_CREATE[obj["kind"]]:
        assert judged(review(USING[path], obj))


@SLOW
@given(damaged(), damaged(), st.sampled_from(sorted(HOOKS)))
def test_every_update_is_judged(new: dict[str, Any], old: dict[str, Any], path: str) -> None:
    assert judged(review(USING[path], new, old=old))


@SLOW
@given(
    st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind", "other"]), ANYTHING),
    st.sampled_from(sorted(HOOKS)),
)
def test_any_document_is_judged(obj: dict[str, Any], path: str) -> None:
    obj["metadata"] = obj["metadata"] if isinstance(obj.get("metadata"), dict) else {}
    obj["kind"] = "VirtualMachine"
    assert judged(review(USING[path], obj))
