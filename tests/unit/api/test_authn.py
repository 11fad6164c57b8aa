"""Who asks, from a verified certificate and headers; and how failures look from outside."""

from __future__ import annotations

import pytest
from grpc import StatusCode
from multidict import CIMultiDict, CIMultiDictProxy

from virt_api.authn import from_headers
from virt_api.frontproxy import FrontProxy, common_name
from virt_api.nodeproblems import from_node
from virt_api.problems import Problem, from_api
from virt_core.kube.errors import ApiError, NotFound, Unreachable


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def test_the_common_name_comes_from_the_subject() -> None:
    certificate = {"subject": ((("organizationName", "front-proxy-client"),), (("commonName", "front"),))}
    assert common_name(certificate) == "front"
    assert common_name({}) == ""
    assert common_name(None) == ""


def test_user_groups_and_extras_are_read_from_the_proxys_headers() -> None:
    who = from_headers(
        headers(
            ("X-Remote-User", "alice"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Group", "a"),
            ("x-remote-group", "b"),
            ("X-Remote-Extra-Scopes", "s1"),
            ("X-Remote-Extra-scopes", "s2"),
            ("X-Remote-Extra-Acme.com%2Fproject", "p"),
        ),
        FrontProxy(),
    )
    assert (who.user, who.uid, who.groups) == ("alice", "7", ("a", "b"))
    assert who.extra == {"scopes": ["s1", "s2"], "acme.com/project": ["p"]}


def test_a_proxy_that_names_nobody_is_refused() -> None:
    with pytest.raises(Problem) as refused:
        from_headers(headers(("X-Remote-Group", "system:masters")), FrontProxy())
    assert refused.value.code == 401


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound(404, "NotFound", "x"), 404),
        (Unreachable("refused"), 503),
        (ApiError(500, "InternalError", "boom"), 500),
    ],
)
def test_failures_of_the_api_server_keep_their_meaning(error: ApiError, code: int) -> None:
    assert from_api(error, "vm1").code == code


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (StatusCode.UNAVAILABLE, 503),
        (StatusCode.NOT_FOUND, 503),
        (StatusCode.DEADLINE_EXCEEDED, 504),
        (StatusCode.FAILED_PRECONDITION, 409),
        (StatusCode.INTERNAL, 500),
    ],
)
def test_failures_of_a_node_keep_their_meaning(status: StatusCode, code: int) -> None:
    assert from_node(status, "why", "node1").code == code


def test_a_problem_is_a_status_object() -> None:
    document = Problem(404, "gone", name="vm1").document()
    assert (document["kind"], document["apiVersion"], document["code"], document["reason"]) == (
        "Status",
        "v1",
        404,
        "NotFound",
    )
    assert document["details"] == {"name": "vm1", "group": "kubevirt.io", "kind": "virtualmachineinstance"}
