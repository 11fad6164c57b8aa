"""Nobody grants what they do not hold."""

from __future__ import annotations

from typing import Any

import pytest
from framework.stored import admission

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import User
from virt_local.apiserver.security.escalation import check_rbac_write, covered
from virt_local.apiserver.security.rbac import GROUP, RbacIndex, parse_rule

ALICE = User("alice", ("system:authenticated",))


def rule(verbs: str, resources: str, groups: str = "", names: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {
        "verbs": verbs.split(","),
        "resources": resources.split(","),
        "apiGroups": groups.split(","),
    }
    return made | ({"resourceNames": names.split(",")} if names else {})


def index_of_alice(*rules: dict[str, Any]) -> RbacIndex:
    index = RbacIndex()
    index.put("ClusterRole", {"metadata": {"name": "hers"}, "rules": list(rules)})
    index.put("ClusterRole", {"metadata": {"name": "big"}, "rules": [rule("*", "*", "*")]})
    subject = {"kind": "User", "name": "alice"}
    ref = {"kind": "ClusterRole", "name": "hers"}
    index.put("ClusterRoleBinding", {"metadata": {"name": "b"}, "roleRef": ref, "subjects": [subject]})
    return index


def role_write(*rules: dict[str, Any], **more: Any) -> Any:
    obj = {"metadata": {"name": "new"}, "rules": list(rules)}
    return admission(resource="roles", group=GROUP, kind="Role", obj=obj, user=ALICE, name="new", **more)


def binding_write(role: str) -> Any:
    obj = {"metadata": {"name": "new"}, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": []}
    return admission(resource="rolebindings", group=GROUP, kind="RoleBinding", obj=obj, user=ALICE, name="new")


@pytest.mark.parametrize(
    ("wanted", "held", "expected"),
    [
        (rule("get", "pods"), [rule("get,list", "pods,secrets")], True),
        (rule("get,list", "pods"), [rule("get", "pods"), rule("list", "*")], True),
        (rule("get,delete", "pods"), [rule("get", "pods")], False),
        (rule("*", "pods"), [rule("get,list,watch", "pods")], False),
        (rule("get", "*"), [rule("get", "pods")], False),
        (rule("get", "pods", "*"), [rule("get", "pods", "")], False),
        (rule("get", "pods"), [rule("get", "pods", names="a")], False),
        (rule("get", "pods", names="a"), [rule("get", "pods", names="a,b")], True),
        (rule("get", "pods/log"), [rule("get", "pods")], False),
        (rule("get", "pods/log"), [rule("get", "*/log")], True),
    ],
)
def test_coverage(wanted: dict[str, Any], held: list[dict[str, Any]], expected: bool) -> None:
    assert covered(parse_rule(wanted), [parse_rule(each) for each in held]) is expected


def test_a_role_with_more_than_its_writer_holds_is_refused() -> None:
    with pytest.raises(errors.ApiError) as caught:
        check_rbac_write(index_of_alice(rule("get", "pods")), role_write(rule("get", "pods,secrets")))
    assert caught.value.code == 403
    assert "not currently held" in caught.value.message
    assert '"secrets"' in caught.value.message


def test_a_role_within_its_writers_rights_is_fine() -> None:
    check_rbac_write(index_of_alice(rule("get,list", "pods")), role_write(rule("get", "pods")))


def test_escalate_lifts_the_check() -> None:
    check_rbac_write(index_of_alice(rule("escalate", "roles", GROUP)), role_write(rule("*", "*", "*")))


def test_binding_a_larger_role_is_refused_unless_bind_is_held() -> None:
    with pytest.raises(errors.ApiError, match="not currently held"):
        check_rbac_write(index_of_alice(rule("get", "pods")), binding_write("big"))
    check_rbac_write(index_of_alice(rule("bind", "clusterroles", GROUP, "big")), binding_write("big"))


def test_binding_a_role_that_does_not_exist_is_refused() -> None:
    with pytest.raises(errors.ApiError) as caught:
        check_rbac_write(index_of_alice(rule("get", "pods")), binding_write("absent"))
    assert caught.value.code == 404


def test_aggregation_needs_everything() -> None:
    request = role_write()
    request.resource, request.object["aggregationRule"] = "clusterroles", {"clusterRoleSelectors": [{}]}
    with pytest.raises(errors.ApiError):
        check_rbac_write(index_of_alice(rule("get", "pods")), request)


def test_labels_may_change_without_the_rights() -> None:
    request = role_write(rule("*", "*", "*"), operation="UPDATE")
    request.old_object = {**request.object, "metadata": {"name": "new", "labels": {"a": "b"}}}
    check_rbac_write(index_of_alice(rule("get", "pods")), request)
