"""Objects: every call is one request to the API server, with the caller's token and nothing of virt-api's."""

from __future__ import annotations

import threading

import pytest
from framework.waiting import eventually
from functional.api.automation.rig import COLLECTION, AutomationRig, document
from functional.api.rig import TOKEN

from virt_client import AlreadyExists, Conflict, Expired, Invalid, NotFound

ONE = f"{COLLECTION}/vm1"


def test_the_users_token_goes_along_and_our_certificate_does_not(auto: AutomationRig) -> None:
    auto.answer("GET", ONE, document())
    with auto.client() as client:
        assert client.get("vmi", "vm1").phase == "Running"
    (asked,) = auto.api.asked
    assert asked.token == f"Bearer {TOKEN}"
    assert not asked.client_certificate


def test_create_fills_in_what_may_be_left_out(auto: AutomationRig) -> None:
    auto.answer("POST", COLLECTION, document(phase="Pending"), 201)
    with auto.client() as client:
        manifest = {"kind": "VirtualMachineInstance", "metadata": {"name": "vm1"}, "spec": {"domain": {}}}
        made = client.create(manifest, dry_run=True)
    (asked,) = auto.api.asked
    assert asked.body["apiVersion"] == "kubevirt.io/v1"
    assert asked.body["metadata"] == {"name": "vm1", "namespace": "default"}
    assert asked.query == {"dryRun": "All"}
    assert (made.name, made.phase, made.uid) == ("vm1", "Pending", "uid-vm1")


def test_typed_fields_and_the_whole_object(auto: AutomationRig) -> None:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Paused", "status": "True"}]
    interfaces = [{"name": "default", "ipAddress": "10.1.1.1", "ipAddresses": ["10.1.1.1", "fd00::1"]}]
    auto.answer("GET", ONE, document(nodeName="n1", conditions=conditions, interfaces=interfaces, futureField=7))
    with auto.client() as client:
        machine = client.get("vmi", "vm1")
    assert (machine.ready, machine.paused, machine.node_name) == (True, True, "n1")
    assert machine.ip_addresses == ("10.1.1.1", "fd00::1")
    assert machine.manifest["status"]["futureField"] == 7


def test_list_follows_the_pages_unless_a_limit_is_given(auto: AutomationRig) -> None:
    page = {"items": [document("a"), document("b")], "metadata": {"resourceVersion": "9"}}
    auto.answer("GET", "/apis/kubevirt.io/v1/virtualmachineinstances", page)
    with auto.client() as client:
        found = client.list("vmi", all_namespaces=True, label_selector="app=x")
    assert [each.name for each in found.items] == ["a", "b"]
    assert found.resource_version == "9"
    assert auto.api.asked[0].query["labelSelector"] == "app=x"


def test_update_by_whole_object_and_by_both_patches(auto: AutomationRig) -> None:
    for method in ("PUT", "PATCH"):
        auto.answer(method, ONE, document(version="6"))
    with auto.client() as client:
        assert client.update(document()).resource_version == "6"
        client.patch("vmi", "vm1", {"metadata": {"labels": {"a": "b"}}})
        client.patch("vmi", "vm1", [{"op": "remove", "path": "/metadata/labels"}])
    types = [asked.content_type for asked in auto.api.asked]
    assert types == ["application/json", "application/merge-patch+json", "application/json-patch+json"]


def test_delete_says_what_is_meant(auto: AutomationRig) -> None:
    auto.answer("DELETE", ONE, {"kind": "Status", "status": "Success"})
    with auto.client() as client:
        client.delete("vmi", "vm1", uid="uid-vm1", grace_period_s=0)
    body = auto.api.asked[0].body
    assert (body["preconditions"], body["gracePeriodSeconds"]) == ({"uid": "uid-vm1"}, 0)
    assert "propagationPolicy" not in body


def test_refusals_keep_their_causes(auto: AutomationRig) -> None:
    cause = {"reason": "FieldValueInvalid", "field": "spec.domain", "message": "no such thing"}
    auto.fail("POST", COLLECTION, 422, "Invalid", "vm1 is invalid", causes=[cause])
    with auto.client() as client, pytest.raises(Invalid) as refused:
        client.create(document())
    (found,) = refused.value.causes
    assert (found.type, found.field, found.message) == ("FieldValueInvalid", "spec.domain", "no such thing")
    assert refused.value.message == "vm1 is invalid; spec.domain: no such thing"
    assert refused.value.reason == "Invalid"


def test_each_conflict_is_told_apart(auto: AutomationRig) -> None:
    auto.fail("POST", COLLECTION, 409, "AlreadyExists", "vm1 exists")
    auto.fail("PUT", ONE, 409, "Conflict", "it has changed")
    with auto.client() as client:
        with pytest.raises(AlreadyExists):
            client.create(document())
        with pytest.raises(Conflict):
            client.update(document())
        with pytest.raises(NotFound):
            client.get("vmi", "absent")


@pytest.mark.parametrize("name", ["../secrets/x", "a/b", "", "A", "x?y"])
def test_a_name_can_not_leave_its_path(auto: AutomationRig, name: str) -> None:
    with auto.client() as client, pytest.raises(Invalid):
        client.get("vmi", name)
    assert not auto.api.asked


def test_a_watch_outlives_the_api_servers_limit(auto: AutomationRig) -> None:
    """First what is there, then a bookmark, then changes of two watches in a row."""
    auto.answer("GET", COLLECTION, {"items": [document("a")], "metadata": {"resourceVersion": "10"}})
    auto.api.events = [
        [{"type": "MODIFIED", "object": document("a", phase="Failed", version="11")}],
        [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "15"}}}],
        [{"type": "DELETED", "object": document("a", version="16")}],
    ]
    seen = []
    with auto.client() as client, client.watch("vmi") as watch:
        for change in watch:
            seen.append((change.type, change.resource_version))
            if change.type == "deleted":
                break
    assert seen == [("added", "5"), ("bookmark", "10"), ("modified", "11"), ("bookmark", "15"), ("deleted", "16")]
    versions = [asked.query["resourceVersion"] for asked in auto.api.asked if "watch" in asked.query]
    assert versions[:3] == ["10", "11", "15"]


def test_a_version_that_is_too_old_is_said(auto: AutomationRig) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    auto.api.events = [[{"type": "ERROR", "object": gone}]]
    with auto.client() as client, client.watch("vmi", resource_version="1") as watch, pytest.raises(Expired):
        list(watch)


def test_close_ends_a_watch(auto: AutomationRig) -> None:
    with auto.client() as client:
        watch = client.watch("vmi", resource_version="1")
        seen: list[object] = []
        reader = threading.Thread(target=lambda: seen.extend(watch))
        reader.start()
        eventually(lambda: auto.api.asked, within_s=10)
        watch.close()
        reader.join(5)
        assert not reader.is_alive()
