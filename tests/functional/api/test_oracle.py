"""Our subresources answer with the status codes of a running KubeVirt, as far as they are built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from functional.api.rig import Rig, make_vmi
from functional.api.test_http import BEARER, call

ORACLE = Path(__file__).resolve().parents[4] / "shared" / "oracle" / "subresources.jsonl"
BUILT = {"console", "vnc", "pause", "unpause", "guestosinfo", "nosuch"}
#: (state, subresource) → (our code, reason)
DEVIATIONS = {
    ("running", "guestosinfo"): (409, "no agent is a state of the guest, not an internal error"),
    ("paused", "guestosinfo"): (409, "no agent is a state of the guest, not an internal error"),
    ("absent", "guestosinfo"): (404, "an absent VMI is not found, whatever is asked of it"),
}

if not ORACLE.exists():
    pytest.skip("the recorded answers are not here", allow_module_level=True)


def cases() -> list[dict[str, Any]]:
    found = [json.loads(line) for line in ORACLE.read_text().splitlines()]
    return [case for case in found if case["kind"] == "virtualmachineinstances" and case["sub"] in BUILT]


def test_status_codes(rig: Rig) -> None:
    rig.client.vmis = {"running": make_vmi("running"), "paused": make_vmi("paused", conditions=("Paused",))}
    for case in cases():
        state = case["state"].removesuffix(", plain GET")
        code, _ = DEVIATIONS.get((state, case["sub"]), (case["code"], ""))
        body = json.dumps(case["body"]).encode() if case["body"] is not None else None
        assert call(rig, case["method"], rig.sub(case["sub"], state), headers=BEARER, body=body)[0] == code, case
