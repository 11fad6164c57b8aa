"""Our admission agrees with recorded answers of a running KubeVirt: verdict, cause fields and types, defaults."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from unit.api.oracle_deviations import VERDICTS
from unit.api.reviews import TODAY_HOOKS, create

from virt_api.admission.door import PLACES, missing_in
from virt_core.apis.support.table import TODAY

ORACLE = Path(__file__).resolve().parents[4] / "shared" / "oracle" / "admission.jsonl"

if not ORACLE.exists():
    pytest.skip("the recorded answers are not here", allow_module_level=True)


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ORACLE.read_text().splitlines()]


def straight(path: str) -> str:
    """KubeVirt repeats a part of some paths; the field itself is meant."""
    return re.sub(
        r"^spec\.domain\.devices\.disks\.domain\.devices\.disks(\.disk)?(\[\d+\])",
        r"spec.domain.devices.disks\2\1",
        path,
    )


def without_chance(obj: dict[str, Any]) -> dict[str, Any]:
    """Leaves out what differs from run to run, and what only Go's encoder adds.

    The VM's finalizer is there too: KubeVirt's controller adds it with a write of its own, here the webhook does.
    """
    obj = json.loads(json.dumps(obj))
    if obj["kind"] == "VirtualMachine":
        obj["metadata"].pop("finalizers", None)
    template = obj["spec"].get("template", {}).get("spec", {})
    for domain in (obj["spec"].get("domain", {}), template.get("domain", {})):
        for key in ("uuid", "serial"):
            domain.get("firmware", {}).pop(key, None)
        if domain.get("resources") == {}:
            del domain["resources"]
    status = obj.get("status", {})
    status.pop("guestOSInfo", None)
    status.pop("handoffs", None)
    for stamp in status.get("phaseTransitionTimestamps", []):
        stamp.pop("phaseTransitionTimestamp")
    return obj


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
def test_verdict_and_causes(case: dict[str, Any]) -> None:
    verdict = create(case["object"])
    code, causes = case["code"], sorted({(straight(field), type_) for field, type_ in case.get("causes") or []})
    if case["name"] in VERDICTS:
        code, listed, _ = VERDICTS[case["name"]]
        assert (code, sorted(set(listed))) != (case["code"], causes), "no longer a deviation"
        causes = sorted(set(listed))
    assert (verdict.code, sorted(set(verdict.causes))) == (code, causes), verdict.message


@pytest.mark.parametrize("case", [case for case in cases() if case["code"] == 201], ids=lambda case: case["name"])
def test_defaults(case: dict[str, Any]) -> None:
    if case["name"] in VERDICTS:
        pytest.skip(VERDICTS[case["name"]][2])
    given = case["object"].get("spec", {}).get("domain", {}).get("firmware", {}).get("uuid")
    verdict = create(case["object"])
    assert without_chance(verdict.admitted) == without_chance(case["admitted"])
    if given:
        assert verdict.admitted["spec"]["domain"]["firmware"]["uuid"] == given


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
def test_what_is_not_built_is_refused_by_its_row_and_nothing_else_differs(case: dict[str, Any]) -> None:
    """Today's answer is that of the rules, but for what the table says, path by path."""
    kind, rules, today = case["object"]["kind"], create(case["object"]), create(case["object"], using=TODAY_HOOKS)
    if feature := TODAY.kind(kind):
        assert (today.code, today.message) == (422, f"{kind}: {feature.refusal}")
        return
    missing = missing_in(TODAY, kind, case["object"]) if kind in PLACES else []
    if not missing:
        assert (today.code, today.causes) == (rules.code, rules.causes)
        return
    assert today.code == 422
    refused = {(path, "FieldValueNotSupported") for path, _ in missing}
    assert refused <= set(today.causes) or rules.code == 422, today.causes
    assert set(today.causes) - refused <= set(rules.causes)


def test_every_deviation_is_a_recorded_case() -> None:
    assert set(VERDICTS) <= {case["name"] for case in cases()}
