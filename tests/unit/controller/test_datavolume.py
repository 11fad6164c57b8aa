"""What becomes of a DataVolume, step by step, and what its importer Pod is like."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from virt_controller.datavolume import claims, whose
from virt_controller.datavolume.decide import Decision, World, decide, report_of
from virt_controller.datavolume.plan import plan_of
from virt_controller.datavolume.render import importer_pod
from virt_controller.launcher_pod import TemplateConfig
from virt_core.apis import datavolume as dv
from virt_core.apis import importplan
from virt_core.apis.base import decode, encode, from_plain
from virt_core.apis.datavolume import DataVolume, DataVolumeSpec, DataVolumeStatus
from virt_core.apis.importplan import ImportPlan, ImportReport, Progress
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.pods import Pod
from virt_core.apis.registry import owner_reference
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.runtime.times import rfc3339

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HTTP = {"http": {"url": "https://example.test/disk.qcow2"}}
SIZE = {"resources": {"requests": {"storage": "1Gi"}}}


def volume(source: dict[str, Any] = HTTP, *, status: DataVolumeStatus | None = None, **annotations: str) -> DataVolume:
    metadata = ObjectMeta(name="disk", namespace="default", uid="u1", annotations=annotations, labels={"a": "b"})
    return DataVolume(metadata=metadata, spec={"source": source, "storage": SIZE}, status=status or DataVolumeStatus())


def look(given: DataVolume, world: World | None = None, now: datetime = NOW) -> Decision:
    return decide(given, from_plain(given.spec, DataVolumeSpec), world or World(), now)


def claim(given: DataVolume, phase: str = "Bound", *, ours: bool = True, **annotations: str) -> PersistentVolumeClaim:
    owners = [owner_reference(given)] if ours else []
    found = PersistentVolumeClaim(
        metadata=ObjectMeta(name="disk", namespace="default", annotations=annotations, owner_references=owners)
    )
    found.status.phase = phase
    return found


def pod(phase: str, report: ImportReport | str = "", *, exit_code: int = 0, ago_s: float = 0) -> Pod:
    message = report if isinstance(report, str) else encode(report).decode()
    ended = {"exitCode": exit_code, "message": message, "finishedAt": rfc3339(NOW - timedelta(seconds=ago_s))}
    state = {"terminated": ended} if phase in ("Succeeded", "Failed") else {"running": {}}
    status = {"phase": phase, "containerStatuses": [{"name": "importer", "state": state}]}
    return from_plain({"metadata": {"name": "importer-disk"}, "status": status}, Pod)


def conditions(decision: Decision) -> dict[str, str]:
    return {each.type: each.status for each in decision.status.conditions}


def running(decision: Decision) -> tuple[str, str]:
    found = next(each for each in decision.status.conditions if each.type == "Running")
    return found.reason, found.message


def test_first_the_claim_then_the_pod_then_the_end() -> None:
    given = volume()
    first = look(given)
    assert (first.create_claim, first.status.phase, first.status.progress) == (True, "Pending", "N/A")
    waiting = look(given, World(claim(given, "Pending")))
    assert (waiting.status.phase, waiting.create_pod) == ("Pending", False)
    bound = look(given, World(claim(given)))
    assert (bound.status.phase, bound.create_pod, conditions(bound)["Bound"]) == ("ImportScheduled", True, "True")
    going = look(given, World(claim(given), pod("Running"), Progress(percent=12.345)))
    assert (going.status.phase, going.status.progress) == ("ImportInProgress", "12.35%")
    assert going.annotations == {dv.KEY_POD_PHASE: "Running", dv.KEY_POD_READY: "true"}
    done = look(given, World(claim(given), pod("Succeeded", ImportReport(reason="Completed"))))
    assert (done.status.phase, done.status.progress, done.delete_pod) == ("Succeeded", "100.0%", True)
    assert conditions(done) == {"Bound": "True", "Running": "False", "Ready": "True"}


@pytest.mark.parametrize(
    ("source", "scheduled", "going"),
    [
        ({"upload": {}}, "UploadScheduled", "UploadReady"),
        ({"blank": {}}, "ImportScheduled", "ImportInProgress"),
        ({"registry": {"url": "docker://a.test/b"}}, "ImportScheduled", "ImportInProgress"),
    ],
)
def test_the_phases_of_each_source(source: dict[str, Any], scheduled: str, going: str) -> None:
    given = volume(source)
    assert look(given, World(claim(given))).status.phase == scheduled
    assert look(given, World(claim(given), pod("Running"), Progress(percent=1))).status.phase == going


def test_an_upload_is_ready_only_when_somebody_listens() -> None:
    given = volume({"upload": {}})
    decision = look(given, World(claim(given), pod("Running")))
    assert (decision.status.phase, decision.annotations[dv.KEY_POD_READY]) == ("UploadScheduled", "false")


def test_a_silent_importer_does_not_set_the_progress_back() -> None:
    given = volume(status=DataVolumeStatus(phase="ImportInProgress", progress="40.00%"))
    assert look(given, World(claim(given), pod("Running"))).status.progress == "40.00%"


def test_a_claim_that_waits_for_its_first_user() -> None:
    given = volume()
    decision = look(given, World(claim(given, "Pending"), first_consumer=True))
    assert (decision.status.phase, decision.create_pod) == ("WaitForFirstConsumer", False)
    now = volume(**{dv.KEY_BIND_NOW: ""})
    assert look(now, World(claim(now, "Pending"), first_consumer=True)).create_pod


@pytest.mark.parametrize("reason", sorted(importplan.FINAL))
def test_what_would_fail_again_is_over(reason: str) -> None:
    given = volume()
    decision = look(given, World(claim(given), pod("Failed", ImportReport(reason=reason, message="because"))))
    assert (decision.status.phase, running(decision)) == ("Failed", (reason, "because"))
    assert not decision.delete_pod
    after = replace(given, status=decision.status)
    assert look(after, World(claim(given), pod("Failed"))) == Decision(decision.status)


def test_what_may_go_better_is_tried_again_after_a_pause() -> None:
    given = volume(status=DataVolumeStatus(phase="ImportInProgress", restart_count=1))
    ended = ImportReport(reason=importplan.TROUBLE, message="broke off")
    soon = look(given, World(claim(given), pod("Failed", ended, ago_s=2)))
    assert (soon.delete_pod, soon.recheck_s, running(soon)) == (False, 4.0, ("Error", "broke off"))
    later = look(given, World(claim(given), pod("Failed", ended, ago_s=7)))
    assert (later.delete_pod, later.status.restart_count, later.status.phase) == (True, 2, "ImportInProgress")


def test_an_importer_without_last_words_was_killed() -> None:
    assert report_of(pod("Failed", "", exit_code=137)).message.startswith("the importer ended with exit code 137")
    assert report_of(pod("Failed", "not json", exit_code=1)).reason == importplan.TROUBLE
    # Success needs both: the words, and an end without a failure.
    given = volume()
    assert look(given, World(claim(given), pod("Failed", ImportReport(reason="Completed")))).status.phase != "Succeeded"


def test_a_pod_that_no_node_takes_is_not_made_anew_at_once() -> None:
    given = volume(status=DataVolumeStatus(phase="ImportScheduled", restart_count=2))
    status = {"phase": "Failed", "message": "no room", "reason": "OutOfcpu"}
    refused = from_plain(
        {"metadata": {"name": "importer-disk", "creationTimestamp": rfc3339(NOW)}, "status": status}, Pod
    )
    decision = look(given, World(claim(given), refused))
    assert (decision.delete_pod, decision.recheck_s, running(decision)[1]) == (
        False, 12.0, "the importer's Pod ended: no room",
    )  # fmt: skip


def test_a_claim_of_somebody_else() -> None:
    given = volume()
    decision = look(given, World(claim(given, ours=False)))
    assert (decision.status.phase, running(decision)[0]) == ("Pending", "ErrResourceExists")
    welcome = volume(**{dv.KEY_ADOPTION: "true"})
    decision = look(welcome, World(claim(welcome, ours=False)))
    assert (decision.adopt_claim, decision.status.phase) == (True, "Succeeded")
    filled = volume()
    decision = look(filled, World(claim(filled, ours=False, **{dv.KEY_POPULATED_FOR: "disk"})))
    assert (decision.adopt_claim, decision.status.phase) == (True, "Succeeded")


def test_a_status_that_was_lost_is_found_again_on_the_claim() -> None:
    given = volume()
    decision = look(given, World(claim(given, **{dv.KEY_POD_PHASE: "Succeeded"})))
    assert (decision.status.phase, decision.create_pod) == ("Succeeded", False)


def test_a_copy_waits_for_its_source_and_for_those_who_use_it() -> None:
    given = volume({"pvc": {"name": "other", "namespace": "default"}})
    assert running(look(given))[0] == "CloneWithoutSource"
    source = claim(given, ours=False)
    used = look(given, World(claim(given), source=source, users=("VMI a",)))
    assert (used.create_pod, running(used)) == (False, ("CloneSourceInUse", "the claim to copy is used by VMI a"))
    assert look(given, World(claim(given), source=source)).status.phase == "CloneScheduled"


def test_a_claim_of_another_namespace_is_not_copied() -> None:
    decision = look(volume({"pvc": {"name": "other", "namespace": "theirs"}}))
    assert (decision.status.phase, decision.create_claim) == ("Failed", False)
    assert running(decision)[1].startswith("spec.source.pvc.namespace: ")


def test_what_we_do_not_have_fails_at_once() -> None:
    assert look(volume({"s3": {}})).status.phase == "Failed"
    none = volume({"blank": {}})
    none.spec["storage"] = {}
    assert running(look(none))[1].startswith("spec must say how large")


def test_the_claim_has_room_for_the_file_system_and_what_people_said() -> None:
    given = volume(**{"instancetype.kubevirt.io/note": "x", dv.KEY_PREPOPULATED: "no"})
    spec = from_plain(given.spec, DataVolumeSpec)
    made = claims.claim_of(given, spec, claims.disk_size(spec))
    assert made.spec.resources is not None
    assert made.spec.resources.requests == {"storage": str(1081 << 20)}
    assert (made.spec.access_modes, made.metadata.labels) == (["ReadWriteOnce"], {"a": "b"})
    assert made.metadata.annotations == {"instancetype.kubevirt.io/note": "x", dv.KEY_CONTENT_TYPE: "kubevirt"}
    exact = from_plain({"pvc": {**SIZE, "accessModes": ["ReadWriteMany"]}}, DataVolumeSpec)
    made = claims.claim_of(given, exact, claims.disk_size(exact))
    assert made.spec.resources is not None
    assert made.spec.resources.requests == {"storage": str(1 << 30)}


def test_the_pod_has_no_rights_and_knows_its_plan() -> None:
    source = {"http": {"url": "https://example.test/x", "secretRef": "s", "certConfigMap": "c", "checksum": "md5:0",
                       "secretExtraHeaders": ["h1", "h2"]}}  # fmt: skip
    given = volume(source)
    spec = from_plain(given.spec, DataVolumeSpec)
    made = importer_pod(given, spec, plan_of(spec, 5), TemplateConfig("image", user_namespaces=True))
    (container,) = made.spec.containers
    assert (made.spec.automount_service_account_token, made.spec.host_users) == (False, False)
    assert container.security_context is not None
    assert container.security_context.capabilities is not None
    assert container.security_context.capabilities.drop == ["ALL"]
    assert container.security_context.read_only_root_filesystem
    assert made.spec.security_context is not None
    assert (made.spec.security_context.run_as_user, made.spec.security_context.run_as_non_root) == (107, True)
    assert [each.name for each in made.spec.volumes] == [
        "claim", "credentials", "certificates", "headers-0", "headers-1",
    ]  # fmt: skip
    plan = decode(container.env[0].value, ImportPlan)
    assert (plan.url, plan.checksum, plan.size, plan.secret_headers) == ("https://example.test/x", "md5:0", 5, 2)


def test_a_disk_may_be_as_large_as_what_the_claim_has() -> None:
    """A machine makes its disk as long as the claim; a copy of it must fit into an equal claim."""
    given = volume()
    spec, found = from_plain(given.spec, DataVolumeSpec), claim(given)
    assert plan_of(spec, 5, found).room == 0
    found.status.capacity = {"storage": "2Gi"}
    assert (plan_of(spec, 5, found).size, plan_of(spec, 5, found).room) == (5, 2 << 30)


def test_long_names_stay_within_those_of_pods() -> None:
    names = {importplan.pod_name("x" * 253), importplan.pod_name("x" * 252 + "y"), importplan.pod_name("disk")}
    assert len(names) == 3
    assert all(len(name) <= 253 for name in names)


@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        ({dv.LABEL_IMPORTER: "true"}, True),
        ({}, False),
        ({dv.LABEL_IMPORTER: "true", "operator.cdi.kubevirt.io": ""}, False),
        ({"cdi.kubevirt.io": ""}, False),
    ],
)
def test_whose_it_is(labels: dict[str, str], ours: bool) -> None:
    assert whose.is_ours(labels) is ours
