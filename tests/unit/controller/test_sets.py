"""Replica sets and pools: the pure decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from framework.vms import plain_vm, vm

from virt_controller.pool import choose, healing
from virt_controller.pool import decide as pools
from virt_controller.pool.naming import free_numbers, make_vm, relabelled, renewed, spec_for, template_of
from virt_controller.replicaset import decide as replicas
from virt_controller.sets.members import conditions
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.pool import VirtualMachinePool, VirtualMachinePoolSelectionPolicy
from virt_core.apis.replicaset import VirtualMachineInstanceReplicaSet
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.times import rfc3339

NOW = FakeClock().now()
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


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
    named = {"metadata": {"generateName": "guest-", "labels": {"app": "x"}}, "spec": {"domain": {}}}
    assert replicas.make_vmi(replica_set(1, template=named)).metadata.generate_name == "guest-"
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
    assert not pools.decide(pool(1, scaleInStrategy={"opportunistic": {}}), three, NOW).delete
    assert pools.decide(pool(9, paused=True), three, NOW) == pools.Decision()


def test_a_vm_that_goes_keeps_its_number_until_it_is_gone() -> None:
    """Its successor finds what it left behind, and never meets it."""
    going = numbered(1)
    going.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert pools.decide(pool(2), members(numbered(0), going), NOW) == pools.Decision()
    assert pools.decide(pool(3), members(numbered(0), going), NOW).create == 1


def preserving(how: str = "Offline", strategy: str = "proactive") -> dict[str, Any]:
    return {"scaleInStrategy": {strategy: {"statePreservation": how}}}


def test_who_preserves_volumes_guards_its_vms_first() -> None:
    kept = numbered(0)
    kept.metadata.finalizers = [names.FINALIZER_POOL]
    for strategy in ("proactive", "opportunistic"):
        for how in ("Offline", "Online"):
            decision = pools.decide(pool(1, **preserving(how, strategy)), members(kept, numbered(1)), NOW)
            assert (names_of(decision.guard), decision.delete) == (["p-1"], ())
    assert names_of(pools.decide(pool(1, **preserving("Disabled")), members(kept), NOW).guard) == ["p-0"]
    guarded = numbered(1)
    guarded.metadata.finalizers = [names.FINALIZER_POOL]
    assert len(pools.decide(pool(1, **preserving()), members(kept, guarded), NOW).delete) == 1


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


def test_only_selected_ones_are_chosen() -> None:
    vms = [numbered(0), numbered(1), numbered(2)]
    vms[2].metadata.labels["cheap"] = "yes"
    by_label = {"sortPolicy": "AscendingOrder", "selectors": {"labelSelector": {"matchLabels": {"cheap": "yes"}}}}
    policy = from_plain(by_label, VirtualMachinePoolSelectionPolicy)
    assert names_of(choose.in_order(vms, policy)) == ["p-2"]
    term = {"key": "zone", "operator": "In", "values": ["b"]}
    by_node = {"sortPolicy": "AscendingOrder", "selectors": {"nodeSelectorRequirementMatcher": [term]}}
    policy = from_plain(by_node, VirtualMachinePoolSelectionPolicy)
    zones = {"p-1": {"zone": "b"}}
    assert names_of(choose.in_order(vms, policy, lambda v: zones.get(v.metadata.name, {}))) == ["p-1"]
    assert vms[0].spec.template is not None
    vms[0].spec.template.spec.node_selector = {"zone": "b"}
    assert names_of(choose.in_order(vms, policy, lambda v: zones.get(v.metadata.name, {}))) == ["p-0", "p-1"]


def old_vmi(number: int) -> VirtualMachineInstance:
    labels = {names.LABEL_POOL_REVISION: "p-2"}
    return from_plain(
        {"metadata": {"name": f"p-{number}", "labels": labels}, "spec": {"domain": {}}}, VirtualMachineInstance
    )


def test_update_strategies() -> None:
    """The VMs first, all at once; then their VMIs, as many at a time as may be away."""
    vms = (numbered(0, revision="p-2"), numbered(1, revision="p-2"))
    runs = {"p-0": old_vmi(0), "p-1": old_vmi(1)}
    proactive = pools.decide(pool(maxUnavailable=1), members(*vms, old=True, vmis=runs), NOW)
    assert (names_of(proactive.update), proactive.restart) == (["p-0", "p-1"], ())
    lazy = pools.decide(pool(updateStrategy={"opportunistic": {}}), members(*vms, old=True, vmis=runs), NOW)
    assert (len(lazy.update), lazy.restart) == (2, ())
    never = pools.decide(pool(updateStrategy={"unmanaged": {}}), members(*vms, old=True, vmis=runs), NOW)
    assert never == pools.Decision()


@pytest.mark.parametrize(
    ("limit", "ready", "restarted"),
    [
        (None, (True, True), 2),
        (1, (True, True), 1),
        ("50%", (True, True), 1),
        (1, (False, True), 1),
        (1, (False,) * 2, 2),
    ],
)
def test_restarts_within_the_limit(limit: Any, ready: tuple[bool, bool], restarted: int) -> None:
    """One that is down anyway costs nothing, and while it is down no other goes."""
    vms = [numbered(n, ready=up) for n, up in enumerate(ready)]
    runs = {"p-0": old_vmi(0), "p-1": old_vmi(1)}
    decision = pools.decide(pool(maxUnavailable=limit), members(*vms, old=True, vmis=runs), NOW)
    assert (len(decision.restart), decision.update) == (restarted, ())
    if not all(ready):
        assert "p-0" in names_of(decision.restart)


def test_lazy_updates_leave_the_vmi_alone() -> None:
    lazy = pool(1, updateStrategy={"opportunistic": {}})
    assert pools.decide(lazy, members(numbered(0), old=True, vmis={"p-0": old_vmi(0)}), NOW) == pools.Decision()


def test_only_selected_vms_are_updated() -> None:
    vms = (numbered(0, revision="p-2"), numbered(1, revision="p-2"))
    vms[1].metadata.labels["canary"] = "yes"
    policy = {"selectors": {"labelSelector": {"matchLabels": {"canary": "yes"}}}}
    chosen = pool(updateStrategy={"proactive": {"selectionPolicy": policy}})
    assert names_of(pools.decide(chosen, members(*vms, old=True), NOW).update) == ["p-1"]


def changed_pool(**spec: Any) -> VirtualMachinePool:
    """Its template differs from revision p-3 in what is given."""
    template = plain_vm()["spec"] | spec
    return pool(1, virtualMachineTemplate={"metadata": {"labels": {"app": "x"}}, "spec": template})


def current_vmi() -> VirtualMachineInstance:
    made = old_vmi(0)
    made.metadata.labels[names.LABEL_POOL_REVISION] = "p-3"
    return made


def test_a_change_of_the_vm_alone_restarts_nothing() -> None:
    changed = changed_pool(runStrategy="Manual")
    known = members(numbered(0), vmis={"p-0": current_vmi()})
    assert names_of(pools.decide(changed, known, NOW).update) == ["p-0"]
    known = members(numbered(0, revision="p-4"), vmis={"p-0": current_vmi()})
    known = replace(known, templates={**known.templates, "p-4": template_of(changed)})
    assert pools.decide(changed, known, NOW) == pools.Decision()


def test_changed_volumes_need_new_vms() -> None:
    """Where the VM runs; one that is stopped just gets them."""
    changed = changed_pool(dataVolumeTemplates=[{"metadata": {"name": "d"}, "spec": {}}])
    decision = pools.decide(changed, members(numbered(0), vmis={"p-0": current_vmi()}), NOW)
    assert (names_of(decision.rebuild), decision.update, decision.delete) == (["p-0"], (), ())
    assert names_of(pools.decide(changed, members(numbered(0)), NOW).update) == ["p-0"]


def test_labels_of_the_template_follow_it_and_those_of_the_user_stay() -> None:
    machine = numbered(0)
    machine.metadata.labels |= {"old": "1", "app": "w", "mine": "1"}
    before = {"metadata": {"labels": {"old": "1", "app": "w"}}}
    after = relabelled(machine, before, pool(), "p-4").labels
    assert after == {"mine": "1", "app": "x", names.LABEL_POOL_REVISION: "p-4"}


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
