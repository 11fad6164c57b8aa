"""Migrate and CancelMigration over the wire, with the caller's own token."""

from __future__ import annotations

from typing import Any

import pytest
from functional.api.automation.rig import AutomationRig
from functional.api.rig import TOKEN

from virt_client import Forbidden, PreconditionFailed, Unauthenticated

GROUP = "/apis/kubevirt.io/v1/namespaces/default"
JOBS = f"{GROUP}/virtualmachineinstancemigrations"
VERB = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/vm1/migrate"
PROGRESS = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm1/migrationprogress"


def job(phase: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "move", "namespace": "default", "uid": "u"},
        "spec": {"vmiName": "vm1"},
        "status": {"phase": phase, "migrationState": {"sourceNode": "node1", "targetNode": "node2"}},
    }


def test_the_stream_ends_with_what_came_of_it(auto: AutomationRig) -> None:
    auto.answer("PUT", VERB, job(""), status=202)
    auto.answer("GET", f"{JOBS}/move", job("Succeeded"))
    auto.answer("GET", PROGRESS, {"migrationUID": "u", "ended": True, "downtimeMilliseconds": 42})
    with auto.client() as client:
        (last,) = client.migrate("vm1", added_node_selector={"zone": "a"})
    assert (last.done, last.succeeded, last.downtime_ms, last.target_node) == (True, True, 42, "node2")
    assert auto.api.asked[0].body == {"addedNodeSelector": {"zone": "a"}}
    assert {asked.token for asked in auto.api.asked} == {f"Bearer {TOKEN}"}


def test_a_dry_run_gives_a_forecast(auto: AutomationRig) -> None:
    auto.answer("PUT", VERB, {"verdict": "Converges", "message": "fine", "expectedSeconds": 2.0}, status=202)
    with auto.client() as client:
        (only,) = client.migrate("vm1", dry_run=True)
    assert only.forecast is not None
    assert (only.forecast.verdict, only.forecast.expected_s) == ("Converges", 2.0)


def test_what_the_caller_may_not_do_is_not_done_for_them(auto: AutomationRig) -> None:
    auto.fail("PUT", VERB, 403, "Forbidden", "no")
    auto.fail("GET", JOBS, 403, "Forbidden", "no")
    with auto.client() as client:
        with pytest.raises(Forbidden):
            next(client.migrate("vm1"))
        with pytest.raises(Forbidden):
            client.cancel_migration("vm1")
    with auto.client("nobody") as stranger, pytest.raises(Unauthenticated):
        next(stranger.migrate("vm1"))


def test_cancel_gives_up_what_is_under_way(auto: AutomationRig) -> None:
    auto.answer("GET", JOBS, {"items": [job("Running")]})
    auto.answer("DELETE", f"{JOBS}/move", {})
    with auto.client() as client:
        assert client.cancel_migration("vm1") == "move"
        auto.answer("GET", JOBS, {"items": [job("Failed")]})
        with pytest.raises(PreconditionFailed, match="under way"):
            client.cancel_migration("vm1")
