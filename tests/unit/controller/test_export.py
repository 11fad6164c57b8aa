"""What becomes of an export, step by step; what its Pod is like; what its manifests say."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from virt_controller.export import model
from virt_controller.export.certificate import issue
from virt_controller.export.decide import decide
from virt_controller.export.links import Way, internal_way
from virt_controller.export.manifests import documents
from virt_controller.export.model import Decision, Exported, Source, World
from virt_controller.export.render import (
    certificate_secret,
    certificate_secret_of,
    exporter_pod,
    exporter_service,
    plan_id,
    token_secret,
)
from virt_controller.export.snapshots import snapshot_source
from virt_controller.export.sources import Sight, claim_source, vm_source
from virt_controller.launcher_pod import TemplateConfig
from virt_core.apis import exportplan, names
from virt_core.apis.base import decode, from_plain, to_plain
from virt_core.apis.datavolume import KEY_CONTENT_TYPE, DataVolume
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.exportplan import ExportPlan
from virt_core.apis.pods import Pod
from virt_core.apis.services import Service
from virt_core.apis.snapshot import VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.times import rfc3339

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = TemplateConfig("launcher:1", "IfNotPresent")
BLOCK = names.VOLUME_MODE_BLOCK


def export(kind: str = "PersistentVolumeClaim", **spec: Any) -> VirtualMachineExport:
    made = {
        "metadata": {
            "name": "out", "namespace": "default", "uid": "u1", "labels": {"a": "b", "kubevirt.io": "mine"},
            "creationTimestamp": rfc3339(NOW),
        },
        "spec": {"source": {"kind": kind, "name": "disk"}, **spec},
    }  # fmt: skip
    return from_plain(made, VirtualMachineExport)


def claim(name: str = "disk", *, phase: str = "Bound", mode: str = "", owner: str = "", **annotations: str) -> Any:
    owners = [{"apiVersion": "x", "kind": "DataVolume", "name": name, "uid": owner}] if owner else []
    document = {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"claim-{name}", "annotations": annotations,
            "ownerReferences": owners,
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": phase, "capacity": {"storage": "1Gi"}},
    }  # fmt: skip
    if mode:
        document["spec"]["volumeMode"] = mode  # type: ignore[index]
    return from_plain(document, PersistentVolumeClaim)


def machine(*volumes: dict[str, Any], **spec: Any) -> VirtualMachine:
    template = {"spec": {"domain": {}, "volumes": list(volumes)}}
    metadata = {"name": "disk", "namespace": "default", "uid": "vm-1", "generation": 3, "resourceVersion": "9"}
    return from_plain({"metadata": metadata, "spec": {"template": template, **spec}}, VirtualMachine)


def vmi(phase: str) -> VirtualMachineInstance:
    return from_plain(
        {"metadata": {"name": "disk", "namespace": "default"}, "status": {"phase": phase}}, VirtualMachineInstance
    )


def sight(
    claims: Iterable[PersistentVolumeClaim] = (),
    volumes: Iterable[DataVolume] = (),
    vm: VirtualMachine | None = None,
    instance: VirtualMachineInstance | None = None,
    machines: Iterable[VirtualMachineInstance] = (),
    pods: Iterable[Pod] = (),
    kept: Iterable[PersistentVolumeClaim] = (),
) -> Sight:
    by_claim = {f"default/{each.metadata.name}": each for each in claims}
    by_volume = {f"default/{each.metadata.name}": each for each in volumes}
    return Sight(
        claim=by_claim.get,
        data_volume=by_volume.get,
        vm=lambda _: vm,
        vmi=lambda _: instance,
        machines=lambda _: machines,
        pods=lambda _: pods,
        kept=lambda _: kept,
    )


def data_volume(phase: str) -> DataVolume:
    return from_plain({"metadata": {"name": "disk", "namespace": "default"}, "status": {"phase": phase}}, DataVolume)


def pod_using(name: str, phase: str = "Running", app: str = "") -> Pod:
    document = {
        "metadata": {"name": "user", "namespace": "default", "labels": {"kubevirt.io": app}},
        "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}], "containers": []},
        "status": {"phase": phase},
    }
    return from_plain(document, Pod)


# Sources


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (sight(), "PVCNotFound"),
        (sight([claim(phase="Pending")]), "PVCPending"),
        (sight([claim(owner="dv")], [data_volume("ImportInProgress")]), "PVCPending"),
        (sight([claim(owner="dv")]), "PVCPending"),
        (sight([claim(owner="dv")], [data_volume("Succeeded")]), ""),
        (sight([claim()], pods=[pod_using("disk")]), "InUse"),
        (sight([claim()], pods=[pod_using("disk", "Succeeded")]), ""),
        (sight([claim()], pods=[pod_using("disk", app=names.APP_EXPORTER)]), ""),
        (sight([claim()], pods=[pod_using("other")]), ""),
        (sight([claim()], machines=[vmi("Running")]), "InUse"),
        (sight([claim()], machines=[vmi("Succeeded")]), ""),
    ],
)
def test_a_claim_is_served_when_it_is_there_filled_and_nobody_s(seen: Sight, reason: str) -> None:
    assert claim_source("default", "disk", seen).reason == reason


@pytest.mark.parametrize(
    ("found", "disk"),
    [
        (claim(), False),
        (claim(mode=BLOCK), True),
        (claim(**{KEY_CONTENT_TYPE: "kubevirt"}), True),
        (claim(**{KEY_CONTENT_TYPE: ""}), True),
        (claim(**{KEY_CONTENT_TYPE: "archive"}), False),
        (claim(owner="dv"), True),
    ],
)
def test_whether_a_disk_or_files_are_in_it(found: PersistentVolumeClaim, disk: bool) -> None:
    source = claim_source("default", "disk", sight([found], [data_volume("Succeeded")]))
    assert [each.disk for each in source.volumes] == [disk]


def test_a_vm_is_served_while_it_is_stopped() -> None:
    disk = {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}
    dump = {"name": "dump", "memoryDump": {"claimName": "dump"}}
    image = {"name": "image", "containerDisk": {"image": "x"}}
    thrown_away = {"name": "e", "ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}}
    vm = machine(disk, dump, image, thrown_away)
    claims = [claim(), claim("dump"), claim("base")]
    found = vm_source("default", "disk", sight(claims, vm=vm, kept=[claim("state")]))
    assert found.reason == ""
    assert [(each.name, each.disk) for each in found.volumes] == [("disk", True), ("dump", False), ("state", False)]
    assert vm_source("default", "disk", sight(claims, vm=vm, instance=vmi("Running"))).reason == "InUse"
    assert vm_source("default", "disk", sight(claims, vm=vm, instance=vmi("Succeeded"))).reason == ""
    assert vm_source("default", "disk", sight(vm=vm)).reason == "VolumesNotPopulated"
    assert vm_source("default", "disk", sight()).reason == "VMNotFound"
    empty = vm_source("default", "disk", sight(vm=machine(image)))
    assert (empty.reason, empty.empty) == ("VMNoVolumes", True)


def snapshot(ready: bool = True) -> VirtualMachineSnapshot:
    status = {"readyToUse": ready, "virtualMachineSnapshotContentName": "c"}
    return from_plain(
        {"metadata": {"name": "s"}, "spec": {"source": {"kind": "VirtualMachine", "name": "disk"}}, "status": status},
        VirtualMachineSnapshot,
    )


def content() -> VirtualMachineSnapshotContent:
    vm = to_plain(machine({"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}))
    backup = {
        "volumeName": "root", "persistentVolumeClaim": to_plain(claim()), "volumeSnapshotName": "vs-1"
    }  # fmt: skip
    return from_plain(
        {"metadata": {"name": "c"}, "spec": {"source": {"virtualMachine": vm}, "volumeBackups": [backup]}},
        VirtualMachineSnapshotContent,
    )


def test_a_snapshot_s_claims_are_made_and_keep_their_names_in_links() -> None:
    wanted = export("VirtualMachineSnapshot")
    assert snapshot_source(wanted, None, None, sight()).reason == "VMSnapshotNotFound"
    assert snapshot_source(wanted, snapshot(ready=False), content(), sight()).reason == "VMSnapshotNotReady"
    found = snapshot_source(wanted, snapshot(), content(), sight())
    (made,) = found.wanted
    assert made.metadata.name == "out-disk"
    source = made.spec.data_source
    assert source is not None
    assert (source.kind, source.name, source.api_group) == ("VolumeSnapshot", "vs-1", "snapshot.storage.k8s.io")
    assert look(wanted, World(found)).create_claims
    there = snapshot_source(wanted, snapshot(), content(), sight([made]))
    assert [(each.name, each.claim.metadata.name, each.disk) for each in there.volumes] == [("disk", "out-disk", True)]
    foreign = snapshot_source(wanted, snapshot(), content(), sight([claim("out-disk")]))
    assert (foreign.reason, foreign.volumes) == ("NameTaken", ())


# Decisions

DISK = Source((Exported("disk", claim(), True),))


def look(given: VirtualMachineExport, world: World, now: datetime = NOW, external: Way | None = None) -> Decision:
    return decide(given, world, now, external)


def made(source: Source = DISK, phase: str = "Pending", *, ready: bool = False, certified: bool = True) -> Pod:
    found = exporter_pod(export(), source.volumes, source.vm, CONFIG, "")
    found.metadata.uid = "pod-1"
    if certified:
        found.metadata.annotations[model.KEY_CERTIFICATE] = "PEM"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = from_plain({"phase": phase, "conditions": conditions}, type(found.status))
    return replace(found, status=status)


def test_first_the_token_the_service_and_the_pod() -> None:
    decision = look(export(), World(DISK))
    assert (decision.create_token, decision.create_service, decision.create_pod) == (True, True, True)
    assert decision.status.phase == "Pending"
    assert decision.status.token_secret_ref == "export-token-out"
    assert decision.status.ttl_expiration_time == "2026-01-01T02:00:00Z"
    own = look(export(tokenSecretRef="mine"), World(DISK))
    assert (own.create_token, own.status.token_secret_ref) == (False, "mine")


def test_then_its_certificate_then_links() -> None:
    service = exporter_service(export())
    assert look(export(), World(DISK, made(certified=False), service)).certify
    waits = look(export(), World(DISK, made(), service))
    assert (waits.status.phase, waits.status.links, waits.certify) == ("Pending", None, False)
    done = look(export(), World(DISK, made(phase="Running", ready=True), service)).status
    assert done.phase == "Ready"
    assert done.links is not None
    assert done.links.external is None
    inside = done.links.internal
    assert inside is not None
    assert (inside.cert, inside.manifests) == ("PEM", [])
    assert {each.format: each.url for each in inside.volumes[0].formats} == {
        "raw": "https://virt-export-out.default.svc/volumes/disk/disk.img",
        "gzip": "https://virt-export-out.default.svc/volumes/disk/disk.img.gz",
    }
    outside = look(
        export(), World(DISK, made(phase="Running", ready=True), service), external=Way("external", "B", "C")
    )
    assert outside.status.links is not None
    assert outside.status.links.external is not None
    assert outside.status.links.external.volumes[0].formats[0].url == "B/volumes/disk/disk.img"


def test_a_source_that_is_in_use_pauses_it() -> None:
    busy = replace_source(DISK, reason="InUse", message="Virtual Machine default/disk is running")
    decision = look(export(), World(busy, made(phase="Running", ready=True)))
    assert decision.delete_pod
    assert decision.status.phase == "Pending"
    assert decision.status.links is None
    assert [note.reason for note in decision.notes] == ["ExportPaused"]
    assert decision.recheck_s == 3.0
    # Said once: when the Pod is gone there is nothing to be paused.
    assert look(export(), World(busy)).notes == ()


def replace_source(source: Source, **changes: Any) -> Source:
    from dataclasses import replace as changed

    return changed(source, **changes)


def test_nothing_to_serve_is_skipped() -> None:
    decision = look(export(), World(Source(reason="VMNoVolumes", message="none", empty=True)))
    assert decision.status.phase == "Skipped"
    assert not decision.create_pod


def test_an_exporter_that_ended_is_replaced_after_a_pause() -> None:
    ended = made(phase="Failed")
    state = {"terminated": {"exitCode": 1, "finishedAt": rfc3339(NOW)}}
    statuses = [{"name": "exporter", "state": state}]
    ended = replace(ended, status=from_plain({"phase": "Failed", "containerStatuses": statuses}, type(ended.status)))
    assert not look(export(), World(DISK, ended)).delete_pod
    later = look(export(), World(DISK, ended), NOW + timedelta(seconds=6))
    assert later.delete_pod
    assert [note.reason for note in later.notes] == ["ExporterPodFailedOrCompleted"]


def test_another_source_needs_another_pod() -> None:
    changed = Source((*DISK.volumes, Exported("more", claim("more"), True)))
    assert look(export(), World(changed, made(phase="Running", ready=True))).delete_pod


@pytest.mark.parametrize("ttl", ["30s", "0.5m", "20s10s"])
def test_its_time_is_over_also_if_it_never_served(ttl: str) -> None:
    given = export(ttlDuration=ttl)
    assert not look(given, World(Source(reason="PVCNotFound")), NOW + timedelta(seconds=29)).delete_export
    over = look(given, World(Source(reason="PVCNotFound")), NOW + timedelta(seconds=30))
    assert (over.delete_export, over.status.phase) == (True, "Terminated")


def test_what_is_another_s_is_not_touched() -> None:
    decision = look(export(), World(DISK, taken="Pod virt-export-out"))
    assert not decision.create_pod
    assert "virt-export-out" in decision.status.conditions[0].message


# What is made


def test_the_pod_may_only_read_and_has_no_rights() -> None:
    volumes = (Exported("disk", claim(), True), Exported("dev.1", claim("dev.1", mode=BLOCK), True))
    pod = exporter_pod(export(), volumes, None, CONFIG, "2026-01-01T01:00:00Z")
    container = pod.spec.containers[0]
    assert pod.spec.automount_service_account_token is False
    assert all(each.read_only for each in container.volume_mounts)
    claims = [v.persistent_volume_claim for v in pod.spec.volumes if v.persistent_volume_claim is not None]
    assert [(each.claim_name, each.read_only) for each in claims] == [("disk", True), ("dev.1", True)]
    context, inner = pod.spec.security_context, container.security_context
    assert context is not None
    assert inner is not None
    assert (context.run_as_user, context.run_as_non_root, context.fs_group) == (107, True, 107)
    assert inner.capabilities is not None
    assert (inner.capabilities.drop, inner.allow_privilege_escalation, inner.read_only_root_filesystem) == (
        ["ALL"], False, True,
    )  # fmt: skip
    plan = decode(container.env[0].value, ExportPlan)
    assert [(each.name, each.path, each.block) for each in plan.volumes] == [
        ("disk", "/export-volumes/0", False), ("dev.1", "/dev/export-volumes/1", True),
    ]  # fmt: skip
    assert pod.metadata.labels == {"a": "b", "kubevirt.io": "virt-exporter", names.LABEL_EXPORT_SERVICE: "out"}


def test_the_service_finds_the_pod_of_this_export_alone() -> None:
    service: Service = exporter_service(export())
    pod = exporter_pod(export(), DISK.volumes, None, CONFIG, "")
    assert service.spec.selector.items() <= pod.metadata.labels.items()
    assert (service.spec.ports[0].port, service.spec.ports[0].target_port) == (443, 8443)


def test_the_certificate_is_for_the_service_and_trusts_nothing_else(tmp_path: Any) -> None:
    issued = issue("default", "out", datetime.now(UTC))
    pod = made()
    secret = certificate_secret(pod, issued.files)
    assert secret.metadata.name == certificate_secret_of(pod)
    assert secret.metadata.name.startswith("secret-")
    assert secret.metadata.owner_references[0].uid == "pod-1"
    assert "PRIVATE KEY" not in issued.authority
    assert "PRIVATE" not in repr(issued)
    for name, text in issued.files.items():
        (tmp_path / name).write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    ssl.create_default_context(cadata=issued.authority)
    assert base64.b64encode(issued.files["tls.key"].encode()) not in issued.authority.encode()


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {token_secret(export()).string_data["token"] for _ in range(20)}
    assert len(tokens) == 20
    assert all(len(each) == 20 and each.isalnum() for each in tokens)


def test_a_plan_is_known_by_what_it_serves() -> None:
    vm = machine(runStrategy="Always")
    assert plan_id(DISK.volumes, vm) == plan_id(DISK.volumes, machine(runStrategy="Halted"))
    assert plan_id(DISK.volumes, None) == plan_id(DISK.volumes, None)
    assert len({plan_id(DISK.volumes, None), plan_id((), None), plan_id(DISK.volumes, vm)}) == 3


def test_manifests_make_the_vm_anew_from_the_export() -> None:
    templates = [{"metadata": {"name": "root"}, "spec": {"source": {"blank": {}}}},
                 {"metadata": {"name": "elsewhere"}, "spec": {"source": {"blank": {}}}}]  # fmt: skip
    vm = machine(
        {"name": "a", "dataVolume": {"name": "root"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "disk"}},
        dataVolumeTemplates=templates,
        runStrategy="Halted",
    )
    volumes = [Exported("root", claim("root"), True), Exported("disk", claim(), True),
               Exported("state", claim("state"), False)]  # fmt: skip
    way = internal_way("default", "out", "PEM")
    authority, again, more = documents("out", vm, volumes, way)
    assert (authority["metadata"]["name"], authority["data"]) == ("export-ca-cm-out", {"ca.pem": "PEM"})
    assert again["metadata"] == {"name": "disk"}
    assert "status" not in again
    first, second = again["spec"]["dataVolumeTemplates"]
    assert first["spec"]["source"]["http"] == {
        "url": "https://virt-export-out.default.svc/volumes/root/disk.img.gz",
        "certConfigMap": "export-ca-cm-out",
        "secretExtraHeaders": ["header-secret-out"],
    }
    assert first["spec"]["pvc"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    assert second["spec"] == {"source": {"blank": {}}}
    assert (more["kind"], more["metadata"]["name"]) == ("DataVolume", "disk")


@pytest.mark.parametrize(
    ("name", "pod", "service"),
    [
        ("out", "virt-export-out", "virt-export-out"),
        ("a.b", "virt-export-a.b", "virt-export-a-b"),
        ("x" * 51, "virt-export-" + "x" * 51, "virt-export-" + "x" * 51),
    ],
)
def test_names(name: str, pod: str, service: str) -> None:
    assert (exportplan.pod_name(name), exportplan.service_name(name)) == (pod, service)


@pytest.mark.parametrize("length", [52, 53, 60, 200])
def test_long_names_are_cut_and_differ(length: int) -> None:
    one, other = exportplan.service_name("x" * length), exportplan.service_name("x" * (length - 1) + "y")
    assert one != other
    assert max(len(one), len(other)) <= 63


def test_the_hash_is_fnv_1a() -> None:
    assert (exportplan.fnv1a(""), exportplan.fnv1a("foobar")) == ("811c9dc5", "bf9cf968")
