"""Probes against real containers."""

from __future__ import annotations

from typing import Any

import pytest
from functional.local.node.support import Node, eventually, shell

pytestmark = pytest.mark.root


def ready(node: Node, uid: str) -> bool:
    return {c.type: c.status for c in node.status(uid).conditions}.get("Ready") == "True"


def test_readiness_by_command_comes_and_goes(node: Node) -> None:
    probe: dict[str, Any] = {
        "exec": {"command": ["test", "-e", "/tmp/ready"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    script = "sleep 0.7; touch /tmp/ready; sleep 2; rm /tmp/ready; sleep 100"
    uid = node.run({"containers": [shell(script, readinessProbe=probe)]})
    node.wait_phase(uid, "Running")
    assert not ready(node, uid)
    eventually(lambda: ready(node, uid))
    assert node.status(uid).container_statuses[0].restart_count == 0


def test_liveness_by_tcp_restarts(node: Node) -> None:
    probe = {"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 1}
    uid = node.run(
        {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 1,
            "containers": [shell("sleep 1000", livenessProbe=probe)],
        }
    )
    eventually(
        lambda: bool(node.status(uid).container_statuses) and node.status(uid).container_statuses[0].restart_count >= 1
    )
    assert any(reason == "Unhealthy" and "liveness probe failed" in text for _, reason, text in node.events.seen)


def test_startup_by_http_gates_the_others(node: Node) -> None:
    probe = {"httpGet": {"port": "web", "path": "/ok"}, "periodSeconds": 1, "failureThreshold": 30}
    never = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    uid = node.run(
        {
            "containers": [
                shell(
                    "sleep 1.2; touch /www/ok; httpd -f -p 8080 -h /www",
                    ports=[{"name": "web", "containerPort": 8080}],
                    startupProbe=probe,
                    readinessProbe=never,
                )
            ]
        }
    )
    node.wait_phase(uid, "Running")
    assert node.status(uid).container_statuses[0].started is False
    eventually(lambda: node.status(uid).container_statuses[0].started is True)
    assert not ready(node, uid)


def test_readiness_survives_a_restart_of_the_agent(node: Node) -> None:
    """An adopted container stays ready until a probe says otherwise: no flapping, no write."""
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "initialDelaySeconds": 0}
    uid = node.run({"containers": [shell("sleep 1000", readinessProbe=probe)]})
    eventually(lambda: ready(node, uid))
    node.stop()
    writes = len(node.pods.writes)
    node.start()
    eventually(lambda: node.runtime is not None and node.runtime.manager.worker.state(uid) is not None)
    eventually(lambda: ready(node, uid))
    assert len(node.pods.writes) == writes
