"""Protobuf: what one half writes, the other reads."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver.schema import protobuf, protobuf_write

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "b"}, "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "command": ["x", "y"],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 5},
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "s"}}],
        "terminationGracePeriodSeconds": 30,
    },
    "status": {"phase": "Pending"},
}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "AAEC"}, "type": "Opaque"}
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "l"},
    "spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000006Z", "leaseTransitions": 3},
}


@pytest.mark.parametrize("obj", [POD, SECRET, LEASE], ids=lambda obj: obj["kind"])
def test_what_is_written_can_be_read(obj: dict[str, Any]) -> None:
    assert protobuf_write.is_known(obj)
    assert protobuf.decode(protobuf_write.encode(obj)) == obj


def test_lists_and_failures_have_a_form_and_custom_kinds_have_none() -> None:
    listed = {"apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "7"}, "items": [SECRET]}
    assert protobuf_write.is_known(listed)
    assert b"SecretList" in protobuf_write.encode(listed)
    status = {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 404}
    assert protobuf_write.encode(status).startswith(protobuf.MAGIC)
    assert not protobuf_write.is_known({"apiVersion": "example.com/v1", "kind": "Thing"})
