"""Replica sets and pools: the pure decisions."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from framework.vms import plain_vm, vm

from virt_controller.pool import choose, healing
from virt_controller.pool import decide as pools
from virt_controller.pool.naming import free_numbers, make_vm, renewed, spec_for, template_of
from virt_controller.replicaset import decide as replicas
from virt_controller.sets.members import conditions
from virt_controller.sets.selectors import matches, text
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.meta import LabelSelector
from virt_core.apis.pool import VirtualMachinePool, VirtualMachinePoolSelectionPolicy
from virt_core.apis.replicaset import VirtualMachineInstanceReplicaSet
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.clock import FakeClock, rfc3339

NOW = FakeClock().now()
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("selector", "expected", "words"),
    [
        ({"matchLabels": {"a": "1"}}, True, "a=1"),
        ({"matchLabels": {"a": "2"}}, False, "a=2"),
        ({}, False, ""),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True, "a in (1,2)"),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False, "a notin (1)"),
        ({"matchExpressions": [{"key": "b", "operator": "Exists"}]}, False, "b"),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True, "!b"),
    ],
)
def test_selectors(selector: dict[str, Any], expected: bool, words: str) -> None:
    parsed = from_plain(selector, LabelSelector)
    assert matches(parsed, {"a": "1"}) is expected
    assert text(parsed) == words


def replica_set(count: int | None, **spec: Any) -> VirtualMachineInstanceReplicaSet:
    plain = {
        "metadata": {"name": "rs", "namespace": "default", "uid": "rs"},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"domain": {}}},
            **spec,
        },
    }
    return from_plain(plain, VirtualMachineInstanceReplicaSet)


def member(
    name: str, phase: str = "Running", ready: str = "True", reason: str = "", **meta: Any
) -> VirtualMachineInstance:
    plain = {
        "metadata": {"name": name, **meta},
        "spec": {"domain": {}},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready, "reason": reason}]},
    }
    return from_plain(plain, VirtualMachineInstance)


def test_a_replica_set_makes_what_is_missing_and_deletes_from_the_start() -> None:
    members = [member("a"), member("b"), member("c")]
    assert replicas.decide(replica_set(5), members).create == 2
    assert [v.metadata.name for v in replicas.decide(replica_set(1), members).delete] == ["a", "b"]
    assert replicas.decide(replica_set(None), [member("a")]) == replicas.Decision()
    assert replicas.decide(replica_set(1000), []).create == replicas.BURST


def test_finished_and_leaving_vmis_are_replaced() -> None:
    members = [
        member("over", "Failed"),
        member("leaving", ready="False", reason="PodTerminating"),
        member("going", **DELETED),
    ]
    decision = replicas.decide(replica_set(2), members)
    assert [v.metadata.name for v in decision.delete] == ["over", "leaving"]
    assert decision.create == 2


def test_a_paused_set_stands_still_and_says_so() -> None:
    assert replicas.decide(replica_set(3, paused=True), []) == replicas.Decision()
    told = conditions([], paused=True, failure=("FailedCreate", "quota"), now=NOW)
    assert {c.type for c in told} == {"ReplicaPaused", "ReplicaFailure"}
    assert conditions(told, paused=False, failure=None, now=NOW) == []


def test_what_a_replica_set_makes_and_tells() -> None:
    made = replicas.make_vmi(replica_set(1))
    assert (made.metadata.generate_name, made.metadata.labels) == ("rs", {"app": "x"})
    assert made.metadata.owner_references[0].kind == "VirtualMachineInstanceReplicaSet"
    status = replicas.status(replica_set(3), [member("a"), member("b", ready="False"), member("c", "Failed")])
    assert (status.replicas, status.ready_replicas, status.label_selector) == (2, 1, "app=x")


def pool(count: int = 2, **spec: Any) -> VirtualMachinePool:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": plain_vm()["spec"]}
    plain = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p", "generation": 3},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {"app": "x"}},
            "virtualMachineTemplate": template,
            **spec,
        },
    }
    return from_plain(plain, VirtualMachinePool)


def numbered(number: int, ready: bool = True, revision: str = "p-3", **status: Any) -> VirtualMachine:
    meta = {
        "name": f"p-{number}",
        "labels": {names.LABEL_POOL_REVISION: revision},
        "creationTimestamp": f"2026-01-0{9 - number}T00:00:00Z",
    }
    return vm(metadata=meta, status={"ready": ready, **status})


def members(*vms: VirtualMachine, old: bool = False, **changes: Any) -> pools.Members:
    templates = {"p-3": template_of(pool())}
    if old:
        templates["p-2"] = {"spec": {"another": True}}
    return pools.Members(vms, templates=templates, **changes)


def names_of(vms: Any) -> list[str]:
    return [v.metadata.name for v in vms]


def test_lowest_free_numbers() -> None:
    assert list(islice(free_numbers("p", ["p-0", "p-2", "q-1"]), 3)) == [1, 3, 4]


def test_numbers_go_into_the_names_that_must_differ() -> None:
    template = plain_vm()["spec"]
    template["dataVolumeTemplates"] = [{"metadata": {"name": "disk"}, "spec": {}}]
    template["template"]["spec"]["volumes"] = [
        {"name": "a", "dataVolume": {"name": "disk"}},
        {"name": "b", "dataVolume": {"name": "shared"}},
        {"name": "c", "configMap": {"name": "conf"}},
        {"name": "d", "secret": {"secretName": "hidden"}},
        {"name": "e", "cloudInitNoCloud": {"secretRef": {"name": "user"}}},
    ]
    both = {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True}
    made = spec_for(pool(virtualMachineTemplate={"spec": template}, nameGeneration=both), 4, "p-3")
    assert made.template is not None
    first, second, third, fourth, fifth = made.template.spec.volumes
    assert made.data_volume_templates[0].metadata is not None
    assert made.data_volume_templates[0].metadata.name == "disk-4"
    assert first.data_volume is not None
    assert first.data_volume.name == "disk-4"
    assert second.data_volume is not None
    assert second.data_volume.name == "shared"
    assert third.config_map is not None
    assert third.config_map.name == "conf-4"
    assert fourth.secret is not None
    assert fourth.secret.secret_name == "hidden-4"
    assert fifth.cloud_init_no_cloud is not None
    assert fifth.cloud_init_no_cloud.secret_ref is not None
    assert fifth.cloud_init_no_cloud.secret_ref.name == "user-4"


def test_a_new_vm_knows_its_revision_and_an_old_one_keeps_its_uuid() -> None:
    made = make_vm(pool(), 7, "p-3")
    assert made.metadata.name == "p-7"
    assert made.metadata.labels == {"app": "x", names.LABEL_POOL_REVISION: "p-3"}
    assert made.spec.template is not None
    assert made.spec.template.metadata is not None
    assert made.spec.template.metadata.labels[names.LABEL_POOL_REVISION] == "p-3"
    made.spec.template.spec.domain.firmware = None
    kept = renewed(vm(), made.spec)
    assert kept.template is not None
    assert kept.template.spec.domain.firmware is not None
    assert kept.template.spec.domain.firmware.uuid == "aaaaaaaa-0000-0000-0000-000000000000"


def test_scaling() -> None:
    assert pools.decide(pool(3), members(numbered(0)), NOW).create == 2
    policy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
    decision = pools.decide(pool(1, scaleInStrategy=policy), members(numbered(0), numbered(1), numbered(2)), NOW)
    assert names_of(decision.delete) == ["p-2", "p-1"]
    three = members(numbered(0), numbered(1), numbered(2))
    assert not pools.decide(pool(1, scaleInStrategy={"unmanaged": {}}), three, NOW).delete
    runs = {f"p-{n}": from_plain({"spec": {"domain": {}}}, VirtualMachineInstance) for n in (0, 2)}
    some = members(numbered(0), numbered(1), numbered(2), vmis=runs)
    assert names_of(pools.decide(pool(1, scaleInStrategy={"opportunistic": {}}), some, NOW).delete) == ["p-1"]
    assert pools.decide(pool(9, paused=True), three, NOW) == pools.Decision()


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("AscendingOrder", ["p-0", "p-1", "p-2"]),
        ("DescendingOrder", ["p-2", "p-1", "p-0"]),
        ("Oldest", ["p-2", "p-1", "p-0"]),
        ("Newest", ["p-0", "p-1", "p-2"]),
        ("Random", ["p-1", "p-0", "p-2"]),
    ],
)
def test_orders(sort: str, expected: list[str]) -> None:
    vms = [numbered(1), numbered(0), numbered(2)]
    policy = from_plain({"sortPolicy": sort}, VirtualMachinePoolSelectionPolicy)
    assert names_of(choose.in_order(vms, policy, shuffle=lambda _vms: None)) == expected


def test_selected_ones_come_first() -> None:
    vms = [numbered(0), numbered(1), numbered(2)]
    vms[2].metadata.labels["cheap"] = "yes"
    by_label = {"sortPolicy": "AscendingOrder", "selectors": {"labelSelector": {"matchLabels": {"cheap": "yes"}}}}
    policy = from_plain(by_label, VirtualMachinePoolSelectionPolicy)
    assert names_of(choose.in_order(vms, policy))[0] == "p-2"
    term = {"key": "zone", "operator": "In", "values": ["b"]}
    by_node = {"sortPolicy": "AscendingOrder", "selectors": {"nodeSelectorRequirementMatcher": [term]}}
    policy = from_plain(by_node, VirtualMachinePoolSelectionPolicy)
    zones = {"p-1": {"zone": "b"}}
    assert names_of(choose.in_order(vms, policy, lambda v: zones.get(v.metadata.name, {})))[0] == "p-1"


def old_vmi(number: int) -> VirtualMachineInstance:
    labels = {names.LABEL_POOL_REVISION: "p-2"}
    return from_plain(
        {"metadata": {"name": f"p-{number}", "labels": labels}, "spec": {"domain": {}}}, VirtualMachineInstance
    )


def test_update_strategies() -> None:
    vms = (numbered(0, revision="p-2"), numbered(1, revision="p-2"))
    runs = {"p-0": old_vmi(0), "p-1": old_vmi(1)}
    proactive = pools.decide(pool(), members(*vms, old=True, vmis=runs), NOW)
    assert sorted(names_of(proactive.update)) == sorted(names_of(proactive.restart)) == ["p-0", "p-1"]
    one = pools.decide(pool(maxUnavailable=1), members(*vms, old=True, vmis=runs), NOW)
    assert len(one.update) == len(one.restart) == 1
    half = pools.decide(pool(maxUnavailable="50%"), members(*vms, old=True, vmis=runs), NOW)
    assert len(half.update) == 1
    lazy = pools.decide(pool(updateStrategy={"opportunistic": {}}), members(*vms, old=True, vmis=runs), NOW)
    assert (len(lazy.update), lazy.restart) == (2, ())
    never = pools.decide(pool(updateStrategy={"unmanaged": {}}), members(*vms, old=True, vmis=runs), NOW)
    assert never == pools.Decision()


def test_a_vm_that_is_up_to_date_but_runs_the_old_template_is_restarted() -> None:
    decision = pools.decide(pool(1), members(numbered(0), old=True, vmis={"p-0": old_vmi(0)}), NOW)
    assert (names_of(decision.restart), decision.update) == (["p-0"], ())


def test_changed_volumes_need_new_vms() -> None:
    template = plain_vm()["spec"] | {"dataVolumeTemplates": [{"metadata": {"name": "d"}, "spec": {}}]}
    changed = pool(1, virtualMachineTemplate={"metadata": {"labels": {"app": "x"}}, "spec": template})
    decision = pools.decide(changed, members(numbered(0)), NOW)
    assert (names_of(decision.delete), decision.update) == (["p-0"], ())


def test_the_same_template_in_another_revision_is_no_change() -> None:
    assert pools.decide(pool(1), members(numbered(0)), NOW) == pools.Decision()


@pytest.mark.parametrize(
    ("status", "sick"),
    [
        ({"startFailure": {"consecutiveFailCount": 3}}, True),
        ({"startFailure": {"consecutiveFailCount": 2}}, False),
        ({"printableStatus": "ErrorUnschedulable", "since": 301}, True),
        ({"printableStatus": "ErrorUnschedulable", "since": 200}, False),
        ({"printableStatus": "Stopped", "since": 999}, False),
    ],
)
def test_healing(status: dict[str, Any], sick: bool) -> None:
    since = rfc3339(NOW - timedelta(seconds=status.pop("since", 0)))
    away = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]}
    machine = numbered(0, ready=False, **status, **away)
    assert bool(healing.sick(pool(1, autohealing={}), [machine], NOW)) is sick
    assert not healing.sick(pool(1), [machine], NOW)
    assert names_of(pools.decide(pool(1, autohealing={}), members(machine), NOW).delete) == (["p-0"] if sick else [])


def test_durations() -> None:
    assert healing.seconds("1h30m") == 5400
    assert healing.seconds("90s") == 90
    assert healing.seconds("nonsense") == 300
