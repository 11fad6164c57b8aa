"""Least privilege: each right of our accounts has code behind it, and each call has its right.

The code is read (framework/rights.py). Where it does not say itself which kind a call is about, the tables below do; a
row whose place is gone, a place without a row, a right without a place and a place without a right all fail here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from framework.rights import ROOT, Right, right, sites_of

from virt_core import manifests
from virt_core.apis.names import SIGNER_HANDLER

ACCOUNTS = {"virt_api": "virt-api", "virt_controller": "virt-controller", "virt_handler": "virt-handler"}
_TYPES = ("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype")
_HABITS = ("VirtualMachinePreference", "VirtualMachineClusterPreference")
_TARGETS = ("APIService",)

#: Places that pass on what others ask of them; the question is counted where it is asked.
DOORS = frozenset(
    (
        "virt_api.admission.asuser:AsUser.document:document",
        "virt_api.admission.asuser:AsUser.get:get",
        "virt_api.admission.cluster:KubeCluster.get:get",
        "virt_api.admission.cluster:KubeCluster.list:list",
        "virt_api.admission.cluster:KubeCluster.patch:patch",
        "virt_api.kube:Kube.patch:patch",
        "virt_controller.caches:Caches._watch:Informer",
        "virt_core.kube.informer:Informer._open_watch:watch",
        "virt_core.kube.informer:Informer._relist:list",
        "virt_core.kube.typelookup:KubeLookup.document:raw",
        "virt_core.kube.typelookup:KubeLookup.get:get",
        "virt_core.kube.writes:write_difference:write_operations",
        "virt_core.kube.writes:write_operations:patch",
        "virt_core.kube.writes:write_status:write_operations",
    )
)


def _each(verbs: str, *kinds: str, subresource: str = "") -> frozenset[Right]:
    return frozenset(right(verb, kind, subresource) for verb in verbs.split() for kind in kinds)


_SIGNERS = "certificates.k8s.io/signers"
_ASKED_VMIS = "subresources.kubevirt.io/virtualmachineinstances"
_DATA_VOLUMES = "cdi.kubevirt.io/datavolumes"
_MACHINES = ("VirtualMachine", "VirtualMachineInstance")
_SETS = ("VirtualMachinePool", "VirtualMachineInstanceReplicaSet")
_COPIES = ("VirtualMachineSnapshot", "VirtualMachineRestore")
#: What the rest is about, and what a call needs beyond what it shows.
SAID: dict[str, frozenset[Right]] = {
    "virt_api.admission.kubevirt:KubeVirtValidator._delete:list": _each("list", *_MACHINES),
    "virt_api.kube:Kube.version:raw": frozenset(),  # /version is open to everybody.
    "virt_api.subresources.sev:set_up_session:patch": _each("patch", "VirtualMachineInstance"),
    "virt_api.subresources.volumes:_patch:patch": _each("patch", *_MACHINES)
    | _each("patch", "VirtualMachine", subresource="status"),
    # A websocket: a GET, for which newer API servers want the right to create as well.
    "virt_api.uploads.tunnel:Forwarder.open:ws_connect": _each("get create", "Pod", subresource="portforward"),
    "virt_controller.certificates.controller:CertificateController._watch:Informer": _each(
        "list watch", "Secret", "ConfigMap", *_TARGETS
    ),
    # The admission of Kubernetes asks for these when a request is approved and when it is signed.
    "virt_controller.certificates.signer:NodeSigner._write:patch": _each(
        "patch", "CertificateSigningRequest", subresource="approval"
    )
    | _each("patch", "CertificateSigningRequest", subresource="status")
    | frozenset((Right("approve", _SIGNERS), Right("sign", _SIGNERS))),
    "virt_controller.certificates.snapshot:_get:get": _each("get", "Secret", "ConfigMap", *_TARGETS),
    "virt_controller.certificates.writes:Writer._publish:write_operations": _each("patch", "Secret", *_TARGETS),
    "virt_controller.certificates.writes:Writer._share:write_operations": _each("patch", "ConfigMap"),
    "virt_controller.certificates.writes:Writer._write:write_operations": _each("patch", "Secret"),
    "virt_controller.clone.controller:CloneController._create:create": _each("create", *_COPIES),
    "virt_controller.clone.controller:CloneController._delete:delete": _each("delete", *_COPIES, "VirtualMachineClone"),
    "virt_controller.clone.controller:CloneController._surely:get": _each("get", *_COPIES, "PersistentVolumeClaim"),
    "virt_controller.datavolume.controller:DataVolumeController._create:create": _each(
        "create", "Pod", "PersistentVolumeClaim", "DataVolume"
    ),
    # It does not hold up the deletion of the claim, so no right over that is needed.
    "virt_controller.datavolume.claims:volume_for:OwnerReference": frozenset(),
    "virt_controller.evacuation.controller:EvacuationController._move:create": _each(
        "create", "VirtualMachineInstanceMigration"
    ),
    "virt_controller.export.controller:ExportController._create:create": _each(
        "create", "Pod", "Service", "Secret", "PersistentVolumeClaim"
    ),
    # The Secret goes with the Pod and does not hold up its deletion.
    "virt_controller.export.render:certificate_secret:OwnerReference": frozenset(),
    "virt_controller.hotplug.controller:HotplugController._create:create": _each("create", "Pod"),
    # It does not hold up the deletion of the launcher Pod, so no right over that is needed.
    "virt_controller.hotplug.render:_metadata:OwnerReference": frozenset(),
    # Applying an object that is not there yet creates it.
    "virt_controller.install:DefaultKubeVirt.reconcile:patch": _each("create", "KubeVirt"),
    "virt_controller.launcher_pod.render:controller_reference:OwnerReference": _each(
        "update", "VirtualMachineInstance", subresource="finalizers"
    ),
    "virt_controller.migration.controller:MigrationController._write_vmi:write_difference": _each(
        "patch", "VirtualMachineInstance"
    ),
    "virt_controller.migration.controller:MigrationController._create_pod:create": _each("create", "Pod"),
    "virt_controller.migration.volumes:Bringer.create:create": _each("create", "Pod"),
    "virt_controller.migration.controller:MigrationController._write_job:write_difference": _each(
        "patch", "VirtualMachineInstanceMigration"
    ),
    "virt_controller.migration.controller:MigrationController._write_job:write_status": _each(
        "patch", "VirtualMachineInstanceMigration", subresource="status"
    ),
    "virt_controller.pool.preserve:_detach_data_volume:raw": frozenset(
        (Right("get", _DATA_VOLUMES), Right("patch", _DATA_VOLUMES))
    ),
    "virt_controller.restore.claims:_owners:owner_reference": _each(
        "update", "VirtualMachine", "DataVolume", subresource="finalizers"
    ),
    "virt_controller.restore.controller:RestoreController._change:create": _each("create", "VirtualMachine"),
    "virt_controller.restore.controller:RestoreController._change:write_operations": _each("patch", "VirtualMachine"),
    "virt_controller.restore.controller:RestoreController._hold:owner_reference": _each(
        "update", "VirtualMachine", subresource="finalizers"
    ),
    "virt_controller.restore.controller:RestoreController._unlock:write_status": _each(
        "patch", "VirtualMachine", subresource="status"
    ),
    "virt_controller.restore.volumes:Volumes._create_data_volume:create": _each("create", "DataVolume"),
    "virt_controller.restore.volumes:Volumes._give_to_vm:write_operations": _each("patch", "PersistentVolumeClaim"),
    "virt_controller.restore.volumes:Volumes._made:create": _each("create", "PersistentVolumeClaim"),
    "virt_controller.restore.volumes:Volumes._mark:write_difference": _each("patch", "DataVolume"),
    "virt_controller.restore.volumes:Volumes.change_state:write_difference": _each("patch", "PersistentVolumeClaim"),
    "virt_controller.snapshot.calls:Calls.freeze:raw": frozenset((Right("update", f"{_ASKED_VMIS}/freeze"),)),
    "virt_controller.snapshot.calls:Calls.stop:raw": frozenset(
        (Right("update", "subresources.kubevirt.io/virtualmachines/stop"),)
    ),
    "virt_controller.snapshot.calls:Calls.thaw:raw": frozenset((Right("update", f"{_ASKED_VMIS}/unfreeze"),)),
    "virt_controller.snapshot.contentcontroller:ContentController._create:create": _each("create", "VolumeSnapshot"),
    "virt_controller.snapshot.controller:SnapshotController._create:create": _each(
        "create", "VirtualMachineSnapshotContent"
    ),
    "virt_controller.snapshot.controller:SnapshotController._let_go_on:write_operations": _each(
        "patch", "VirtualMachineInstance"
    ),
    "virt_controller.snapshot.controller:SnapshotController._save_memory:create": _each(
        "create", "PersistentVolumeClaim"
    ),
    "virt_controller.snapshot.revisions:Revisions.give_back:owner_reference": _each(
        "update", "VirtualMachine", subresource="finalizers"
    ),
    "virt_controller.sets.controller:SetController.create:create": _each("create", *_MACHINES),
    "virt_controller.sets.controller:SetController.delete:delete": _each("delete", *_MACHINES),
    "virt_controller.sets.controller:SetController.write:write_status": _each("patch", *_SETS, subresource="status"),
    "virt_controller.migration.controller:MigrationController._tell_devices:write_operations": _each("patch", "Pod"),
    "virt_controller.sets.members:release:write_operations": _each("patch", *_MACHINES),
    "virt_controller.sets.members:take_over:owner_reference": _each("update", *_SETS, subresource="finalizers"),
    "virt_controller.sets.members:take_over:write_operations": _each("patch", *_MACHINES),
    "virt_controller.update.controller:UpdateController._evict:raw": _each("create", "Pod", subresource="eviction"),
    "virt_controller.update.controller:UpdateController._move:create": _each(
        "create", "VirtualMachineInstanceMigration"
    ),
    "virt_controller.uninstall:_namespaces:list": _each("list", *_MACHINES),
    "virt_controller.vmi.keptstate:StateKeeper.make:create": _each("create", "PersistentVolumeClaim"),
    "virt_controller.vm.actions:Actions._keep_revision:create": _each("create", "ControllerRevision"),
    "virt_controller.vm.actions:Actions.start:create": _each("create", "VirtualMachineInstance"),
    "virt_controller.vm.volumes:DataVolumes.create:create": frozenset((Right("create", _DATA_VOLUMES),)),
    "virt_controller.vmi.controller:VMIController._create_pod:create": _each("create", "Pod"),
    "virt_core.instancetype.find:instancetype_object:get": _each("get", *_TYPES),
    "virt_core.instancetype.find:preference_object:get": _each("get", *_HABITS),
    "virt_core.kube.typelookup:CachedLookup.__init__:Informer": _each("list watch", *_TYPES, *_HABITS),
}
#: What a component imports with something else and never calls.
UNUSED: dict[str, tuple[str, ...]] = {
    "virt_api": (
        "virt_core.instancetype.revisions:",  # Revisions are made by virt-controller.
        "virt_core.kube.typelookup:CachedLookup",  # Asks each time: it has no cache of types.
    ),
    "virt_controller": ("virt_core.instancetype.infer:",),  # What a VM left out was inferred at its admission.
    "virt_handler": (),
}
#: Roles of Kubernetes itself that we are bound to, and what of them we use.
FOREIGN_ROLES = {"extension-apiserver-authentication-reader": _each("list watch", "ConfigMap")}


def used(component: str) -> dict[Right, list[str]]:
    """Right → the places that need it."""
    found: dict[Right, list[str]] = {}
    for where, site in sites_of(component).items():
        if where in DOORS or where.startswith(UNUSED[component] or ("-",)):
            continue
        for each in site.rights | SAID.get(where, frozenset()):
            found.setdefault(each, []).append(where)
    return found


def granted(account: str) -> set[Right]:
    """Everything that an account's roles give it, wherever it holds."""
    own = {each for rule in _rules(account) for each in _expand(rule)}
    return own.union(*(FOREIGN_ROLES.get(name, ()) for name in _bound(account)))


def _own_objects() -> list[dict[str, Any]]:
    """What our accounts get: always, and where DataVolumes are ours."""
    return manifests.load("rbac.yaml") + manifests.load("uploads.yaml")


def _bound(account: str) -> list[str]:
    bindings = [o for o in _own_objects() if o["kind"].endswith("Binding")]
    return [b["roleRef"]["name"] for b in bindings if any(s["name"] == account for s in b["subjects"])]


def _rules(account: str, kind: str = "") -> Iterator[dict[str, Any]]:
    objects = _own_objects()
    roles = {(o["kind"], o["metadata"]["name"]): o for o in objects if o["kind"].endswith("Role")}
    for binding in (o for o in objects if o["kind"].endswith("Binding")):
        ref = binding["roleRef"]
        mine = any(subject["name"] == account for subject in binding["subjects"])
        if mine and (ref["kind"], ref["name"]) in roles and kind in ("", ref["kind"]):
            yield from roles[ref["kind"], ref["name"]]["rules"]


def _expand(rule: dict[str, Any]) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            yield from (Right(verb, f"{group}/{resource}" if group else resource) for verb in rule["verbs"])


@pytest.mark.parametrize("component", ACCOUNTS)
def test_every_place_says_what_it_asks_for(component: str) -> None:
    vague = [w for w, site in sites_of(component).items() if not site.rights and w not in DOORS and w not in SAID]
    assert vague == [], "name the kinds of these calls in SAID (or pass the kind as a literal)"


def test_no_row_outlives_its_place() -> None:
    places = {where for component in ACCOUNTS for where in sites_of(component)}
    assert sorted((set(SAID) | DOORS) - places) == []
    for component, prefixes in UNUSED.items():
        assert [p for p in prefixes if not any(w.startswith(p) for w in sites_of(component))] == []


@pytest.mark.parametrize(("component", "account"), ACCOUNTS.items())
def test_no_right_without_use(component: str, account: str) -> None:
    surplus = granted(account) - set(used(component))
    assert sorted(map(str, surplus)) == [], f"no code of {component} uses these: take them out of rbac.yaml"


@pytest.mark.parametrize(("component", "account"), ACCOUNTS.items())
def test_no_use_without_right(component: str, account: str) -> None:
    missing = {str(each): places for each, places in used(component).items() if each not in granted(account)}
    assert missing == {}, "rbac.yaml lacks these"


def test_roles_of_kubernetes_itself_are_few() -> None:
    foreign = [name for account in ACCOUNTS.values() for name in _bound(account) if not name.startswith("virtpod:")]
    assert foreign == list(FOREIGN_ROLES)


def _all_rules() -> Iterator[tuple[str, dict[str, Any]]]:
    chart = (ROOT / "charts/virtpod/templates/uninstall.yaml").read_text()
    own = yaml.safe_load(chart.partition("rules:\n")[2].partition("---")[0])
    yield from (("ClusterRole virtpod:uninstall-check", rule) for rule in own)
    for obj in _own_objects() + manifests.load("roles.yaml"):
        yield from ((f"{obj['kind']} {obj['metadata']['name']}", rule) for rule in obj.get("rules", []))


def test_nothing_is_a_wildcard() -> None:
    for name, rule in _all_rules():
        assert "*" not in "".join(rule["verbs"] + rule["resources"] + rule["apiGroups"]), name
        assert rule["verbs"], name
        assert rule["resources"], name


def test_nobody_reads_secrets_of_the_cluster() -> None:
    """And in our own namespace only those that are named; to create one cannot be limited to a name. Of other
    namespaces none is ever read: an export's token and certificate are made there, and that is all."""
    for name, rule in _all_rules():
        if "secrets" in rule["resources"] and name == "ClusterRole virtpod:virt-controller":
            assert (rule["resources"], rule["verbs"]) == (["secrets"], ["create"])
        elif "secrets" in rule["resources"]:
            assert name.startswith("Role virtpod:"), name
            assert rule.get("resourceNames") or rule["verbs"] == ["create"], name


def test_nobody_may_raise_himself() -> None:
    """No rights over roles, over accounts and their tokens, and none to act as somebody else. What we sign is worth
    something among our own programs only."""
    forbidden = {"bind", "escalate", "impersonate", "approve", "sign"}
    for name, rule in _all_rules():
        own = rule["resources"] == ["signers"] and rule.get("resourceNames") == [SIGNER_HANDLER]
        assert own or not forbidden & set(rule["verbs"]), name
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"], name
        assert not any(resource.startswith(("serviceaccounts", "pods/exec")) for resource in rule["resources"]), name


def test_no_rule_is_there_twice() -> None:
    for account in ACCOUNTS.values():
        for kind in ("ClusterRole", "Role"):
            rights = [each for rule in _rules(account, kind) for each in _expand(rule) if not rule.get("resourceNames")]
            twice = sorted({str(each) for each in rights if rights.count(each) > 1})
            assert twice == [], f"{kind} of {account}"
