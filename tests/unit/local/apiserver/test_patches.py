"""JSON patch, merge patch, strategic merge and server-side apply, on plain documents."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver.errors import ApiError
from virt_local.apiserver.patches.apply import Applier, apply
from virt_local.apiserver.patches.json_patch import apply_json_patch
from virt_local.apiserver.patches.merge import apply_merge_patch
from virt_local.apiserver.patches.ownership import track_update
from virt_local.apiserver.patches.strategic import apply_strategic_patch
from virt_local.apiserver.schema.builtin import builtin_node

POD = builtin_node("V1Pod")


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/a/x", "value": 1}, {"a": {"b": [1, 2], "x": 1}}),
        ({"op": "add", "path": "/a/b/-", "value": 3}, {"a": {"b": [1, 2, 3]}}),
        ({"op": "add", "path": "/a/b/0", "value": 0}, {"a": {"b": [0, 1, 2]}}),
        ({"op": "replace", "path": "/a/b/1", "value": 9}, {"a": {"b": [1, 9]}}),
        ({"op": "remove", "path": "/a/b"}, {"a": {}}),
        ({"op": "move", "from": "/a/b", "path": "/c"}, {"a": {}, "c": [1, 2]}),
        ({"op": "copy", "from": "/a/b/0", "path": "/c"}, {"a": {"b": [1, 2]}, "c": 1}),
        ({"op": "test", "path": "/a/none", "value": None}, {"a": {"b": [1, 2]}}),
        ({"op": "add", "path": "/a/x~1y~0z", "value": 1}, {"a": {"b": [1, 2], "x/y~z": 1}}),
    ],
)
def test_json_patch(operation: dict[str, Any], expected: Any) -> None:
    before = {"a": {"b": [1, 2]}}
    assert apply_json_patch(before, [operation]) == expected
    assert before == {"a": {"b": [1, 2]}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/a/b/7", "value": 1},
        {"op": "remove", "path": "/a/x"},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/a/b/7", "value": 1},
        {"op": "test", "path": "/a/b/0", "value": True},
        {"op": "test", "path": "/a/b/0", "value": 2},
    ],
)
def test_json_patch_that_cannot_be_done(operation: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        apply_json_patch({"a": {"b": [1, 2]}}, [operation])
    assert refused.value.code == 422


def test_merge_patch() -> None:
    document = {"a": 1, "b": {"c": 1, "d": 2}, "l": [1, 2]}
    patch = {"a": None, "b": {"c": 5}, "l": [3], "n": {"x": None, "y": 1}}
    assert apply_merge_patch(document, patch) == {"b": {"c": 5, "d": 2}, "l": [3], "n": {"y": 1}}


def _pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_strategic_merge_joins_lists_by_their_key() -> None:
    document = _pod(containers=[{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}])
    patch = {"spec": {"containers": [{"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]}]}}
    merged = apply_strategic_patch(document, patch, POD)
    first, second = merged["spec"]["containers"]
    assert first["image"] == "2"
    assert [variable["name"] for variable in first["env"]] == ["X", "Y"]
    assert second == {"name": "b"}


def test_strategic_merge_directives() -> None:
    document = _pod(containers=[{"name": "a"}, {"name": "b"}], tolerations=[{"key": "x"}])
    document["metadata"]["finalizers"] = ["one", "two"]
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["one"], "finalizers": ["three"]},
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
            "containers": [{"name": "a", "$patch": "delete"}, {"name": "c"}],
            "tolerations": [{"key": "y"}],
        },
    }
    merged = apply_strategic_patch(document, patch, POD)
    assert merged["metadata"]["finalizers"] == ["three", "two"]
    assert [container["name"] for container in merged["spec"]["containers"]] == ["c", "b"]
    assert merged["spec"]["tolerations"] == [{"key": "y"}]
    replaced = apply_strategic_patch(document, {"spec": {"$patch": "replace", "hostname": "h"}}, POD)
    assert replaced["spec"] == {"hostname": "h"}


def test_strategic_merge_retains_only_named_keys() -> None:
    document = _pod(volumes=[{"name": "v", "emptyDir": {}}])
    volume = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
    merged = apply_strategic_patch(document, {"spec": {"volumes": [volume]}}, POD)
    assert merged["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def _managers(obj: dict[str, Any]) -> dict[str, str]:
    return {entry["manager"]: entry["operation"] for entry in obj["metadata"]["managedFields"]}


def test_apply_removes_what_its_manager_no_longer_wants() -> None:
    me = Applier("me")
    first = apply(None, _pod(hostname="h", containers=[{"name": "a", "image": "1"}]), POD, me)
    second = apply(first, _pod(containers=[{"name": "b", "image": "2"}]), POD, me)
    assert second["spec"] == {"containers": [{"name": "b", "image": "2"}]}
    assert _managers(second) == {"me": "Apply"}


def test_apply_leaves_what_others_own() -> None:
    first = apply(None, _pod(containers=[{"name": "a", "image": "1"}]), POD, Applier("me"))
    second = apply(first, _pod(hostname="h"), POD, Applier("other"))
    assert second["spec"] == {"containers": [{"name": "a", "image": "1"}], "hostname": "h"}
    third = apply(second, _pod(containers=[{"name": "a", "image": "1"}]), POD, Applier("me"))
    assert third["spec"]["hostname"] == "h"


def test_apply_conflicts_unless_forced() -> None:
    first = apply(None, _pod(hostname="h"), POD, Applier("me"))
    apply(first, _pod(hostname="h"), POD, Applier("other"))
    with pytest.raises(ApiError) as refused:
        apply(first, _pod(hostname="x"), POD, Applier("other"))
    assert refused.value.code == 409
    assert refused.value.causes[0].field == ".spec.hostname"
    forced = apply(first, _pod(hostname="x"), POD, Applier("other", force=True))
    assert forced["spec"]["hostname"] == "x"
    assert _managers(forced) == {"other": "Apply"}


def test_the_first_apply_finds_what_was_there_before() -> None:
    live = _pod(hostname="h", subdomain="s")
    result = apply(live, _pod(hostname="h"), POD, Applier("me"))
    assert _managers(result) == {"before-first-apply": "Update", "me": "Apply"}
    with pytest.raises(ApiError):
        apply(live, _pod(hostname="x"), POD, Applier("me"))


def test_a_plain_update_takes_over_the_fields_it_changes() -> None:
    applied = apply(None, _pod(hostname="h"), POD, Applier("me"))
    changed = {**applied, "metadata": dict(applied["metadata"]), "spec": {"hostname": "x"}}
    track_update(applied, changed, POD, manager="kubectl-edit")
    assert _managers(changed)["kubectl-edit"] == "Update"
    with pytest.raises(ApiError) as refused:
        apply(changed, _pod(hostname="h"), POD, Applier("me"))
    assert 'conflict with "kubectl-edit"' in refused.value.message


def test_objects_whose_owners_were_taken_away_stay_without() -> None:
    old, new = _pod(hostname="h"), _pod(hostname="x")
    track_update(old, new, POD, manager="kubectl")
    assert "managedFields" not in new["metadata"]
