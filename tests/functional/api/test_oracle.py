"""Our subresources answer with the status codes of a running KubeVirt.

The recorded requests are sent in their order. In place of the controllers stands `settle`, which does at once what they
would do to VMs and VMIs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from functional.api.rig import FakeClient, Rig, make_vm, make_vmi
from functional.api.subresource_deviations import DEVIATIONS, NOT_BUILT
from functional.api.test_http import BEARER, call

from virt_core.apis.facts import run_strategy

ORACLE = Path(__file__).resolve().parents[4] / "shared" / "oracle" / "subresources.jsonl"

if not ORACLE.exists():
    pytest.skip("the recorded answers are not here", allow_module_level=True)


def settle(client: FakeClient) -> None:
    """Requests are worked off, then the run strategy holds."""
    for name, vm in client.vms.items():
        for request in vm.status.state_change_requests:
            if request.action == "Stop":
                client.vmis.pop(name, None)
            else:
                client.vmis[name] = make_vmi(name)
        vm.status.state_change_requests = []
        strategy = run_strategy(vm)
        if strategy == "Always":
            client.vmis.setdefault(name, make_vmi(name))
        elif strategy == "Halted":
            client.vmis.pop(name, None)
        vm.status.created = name in client.vmis


def prepare(rig: Rig) -> None:
    client = rig.client
    client.vmis = {"running": make_vmi("running"), "paused": make_vmi("paused", conditions=("Paused",))}
    strategies = {"stopped": "Halted", "always": "Always", "manual": "Manual", "rerun": "RerunOnFailure"}
    client.vms = {name: make_vm(name, strategy) for name, strategy in strategies.items()}
    client.vmis["rerun"] = make_vmi("rerun")
    settle(client)


def follow(client: FakeClient, case: dict[str, Any]) -> None:
    """What the handlers would tell about the VMI."""
    if case["state"] == "paused" and case["sub"] == "unpause" and case["code"] == 200:
        client.vmis["paused"] = make_vmi("paused")


def test_status_codes(rig: Rig) -> None:
    prepare(rig)
    cases = [json.loads(line) for line in ORACLE.read_text().splitlines()]
    wrong, used = [], set()
    for case in cases:
        state = case["state"].split(",")[0]
        key = (case["state"].removesuffix(", plain GET"), case["sub"], json.dumps(case["body"]))
        expected = case["code"]
        if case["sub"] in NOT_BUILT:
            expected = 404
        elif key in DEVIATIONS:
            expected = DEVIATIONS[key][0]
            used.add(key)
        body = json.dumps(case["body"]).encode() if case["body"] is not None else None
        url = rig.sub(case["sub"], state, resource=case["kind"])
        code, answer = call(rig, case["method"], url, headers=BEARER, body=body)
        if code != expected:
            wrong.append((case, code, answer))
        if code >= 400 and (case["reason"] and key not in DEVIATIONS and case["sub"] not in NOT_BUILT):
            assert answer["reason"] == case["reason"], case
        follow(rig.client, case)
        settle(rig.client)
    assert len(cases) > 150
    assert not wrong
    assert used == set(DEVIATIONS), "a deviation that no case needs any more"
