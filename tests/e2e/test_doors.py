"""What people write into objects, tried on the running system: it is refused with its field, and tells nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Space
from .manifests import vmi
from .subresource import Subresources
from .vms import vm

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("digits", [70, 4300, 4400])
def test_a_quantity_without_end_is_refused_by_its_field(space: Space, digits: int) -> None:
    manifest = vmi("huge")
    manifest["spec"]["domain"]["memory"] = {"guest": "9" * digits + "Mi"}
    said = space.refuse(manifest)
    assert "spec.domain.memory.guest" in said
    assert "InternalError" not in said


@pytest.mark.parametrize("name", ["..", ".", "%2e%2e", "a%2f..%2fb", "web?force=true", "web%3fx=y"])
def test_a_name_does_not_leave_its_path(space: Space, name: str) -> None:
    """Who may start every VM of the namespace asks: what is not there is not found, and nothing else is reached."""
    space.apply(vm("web", "Halted"))
    calls = Subresources(space, space.kubectl("create", "token", "--duration=10m", admin(space)).strip())
    quoted = name.replace("%", "%25").replace("?", "%3f")
    answer = calls.call("PUT", f"virtualmachines/{quoted}/start", {})
    assert answer.status in (400, 403, 404), answer
    web = space.engine.get("-n", space.namespace, "vm", "web")
    assert web["spec"]["runStrategy"] == "Halted"
    assert not web.get("status", {}).get("stateChangeRequests")


def admin(space: Space) -> str:
    space.kubectl("create", "serviceaccount", "mighty")
    subject = f"--serviceaccount={space.namespace}:mighty"
    space.kubectl("create", "rolebinding", "mighty", "--clusterrole=kubevirt.io:admin", subject)
    return "mighty"


def test_labels_of_another_namespace_are_not_read_for_who_may_not(space: Space) -> None:
    """The claim names an instance type that would give itself away by its size."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "hidden", "labels": {"instancetype.kubevirt.io/default-instancetype": "secret-word"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    space.apply(claim)
    other = f"{space.namespace}-other"
    space.engine.kubectl("create", "namespace", other)
    try:
        space.engine.kubectl("-n", other, "create", "serviceaccount", "curious")
        subject = f"--serviceaccount={other}:curious"
        space.engine.kubectl("-n", other, "create", "rolebinding", "curious", "--clusterrole=kubevirt.io:edit", subject)
        there, gone = (asks(space, other, name) for name in ("hidden", "absent"))
        assert "secret-word" not in there
        assert there.replace("hidden", "NAME") == gone.replace("absent", "NAME")
    finally:
        space.engine.kubectl("delete", "namespace", other, timeout=120)


def asks(space: Space, namespace: str, claim: str) -> str:
    """What is said to a VM that lets the claim's labels decide."""
    manifest: dict[str, Any] = vm("nosy", "Halted")
    source = {"pvc": {"name": claim, "namespace": space.namespace}}
    manifest["spec"]["instancetype"] = {"inferFromVolume": "root"}
    manifest["spec"]["template"]["spec"]["domain"].pop("memory", None)
    manifest["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "dataVolume": {"name": "copy"}}]
    manifest["spec"]["dataVolumeTemplates"] = [
        {"metadata": {"name": "copy"}, "spec": {"source": source, "storage": {}}}
    ]
    who = f"--as=system:serviceaccount:{namespace}:curious"
    done = space.engine.run("kubectl", "-n", namespace, "create", who, "-f", "-", stdin=json.dumps(manifest))
    assert done.returncode != 0, done.stdout
    return done.stderr
