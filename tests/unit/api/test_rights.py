"""The roles that come with Virtpod know every route, and no role knows one that is not there."""

from __future__ import annotations

from virt_api.subresources.routes import ROUTES
from virt_core import manifests

READS = {"GET": "get", "PUT": "update"}


def rights(role: str) -> set[tuple[str, str]]:
    found = next(
        d for d in manifests.load("roles.yaml") if d["kind"] == "ClusterRole" and d["metadata"]["name"] == role
    )
    rules = [rule for rule in found["rules"] if rule["apiGroups"] == ["subresources.kubevirt.io"]]
    return {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}


def needed() -> set[tuple[str, str]]:
    """The cluster profiler is for those who may do everything: no role of a namespace has it."""
    return {
        (READS[route.method], f"{route.resource}/{route.subresource}".rstrip("/"))
        for route in ROUTES
        if not route.clusterwide
    }


#: Moving machines between nodes is for those who run the cluster.
MIGRATE = ("update", "virtualmachines/migrate")


def test_admins_and_editors_may_use_every_route_and_nothing_else() -> None:
    # The API server looks at the first part of a longer path.
    ours = needed() - {MIGRATE}
    first_parts = {(verb, "/".join(path.split("/")[:2])) for verb, path in ours}
    for role in ("kubevirt.io:admin", "kubevirt.io:edit"):
        assert rights(role) == ours | first_parts


def test_who_may_move_machines_may_look_on() -> None:
    assert rights("kubevirt.io:migrate") == {MIGRATE, ("get", "virtualmachineinstances/migrationprogress")}


def test_viewers_only_read_what_tells_no_secret() -> None:
    may = rights("kubevirt.io:view")
    assert may <= needed()
    assert {verb for verb, path in may if path != "expand-vm-spec"} == {"get"}
    for secret in ("console", "vnc", "portforward", "usbredir", "vsock"):
        assert not [path for _, path in may if secret in path]
