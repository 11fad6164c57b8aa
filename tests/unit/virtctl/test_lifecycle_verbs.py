"""start, stop, restart, soft-reboot, reset: one PUT each, with the body that the server expects."""

from __future__ import annotations

from typing import Any

import pytest
from framework.fake_kube import FakeKube, failure

from .conftest import Run

SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default"
VMS, VMIS = f"{SUB}/virtualmachines", f"{SUB}/virtualmachineinstances"


@pytest.fixture(autouse=True)
def accepting(kube: FakeKube) -> None:
    kube.on_request = lambda method, *_: (202, b"", {}) if method == "PUT" else None


@pytest.mark.parametrize(
    ("args", "path", "body"),
    [
        (["start", "one"], f"{VMS}/one/start", {}),
        (["start", "one", "--paused"], f"{VMS}/one/start", {"paused": True}),
        (["start", "one", "--paused=true", "--dry-run"], f"{VMS}/one/start", {"paused": True, "dryRun": ["All"]}),
        (["start", "one", "--discard-state"], f"{VMS}/one/start", {"discardState": True}),
        (["hibernate", "one"], f"{VMS}/one/hibernate", {}),
        (["hibernate", "one", "--claim-name=c"], f"{VMS}/one/hibernate", {"claimName": "c"}),
        (["stop", "one"], f"{VMS}/one/stop", {}),
        (["stop", "one", "--force", "--grace-period=0"], f"{VMS}/one/stop", {"gracePeriod": 0}),
        (["stop", "one", "--force=true", "--grace-period", "7"], f"{VMS}/one/stop", {"gracePeriod": 7}),
        (["restart", "one"], f"{VMS}/one/restart", {}),
        (["restart", "one", "--force", "--grace-period=0"], f"{VMS}/one/restart", {"gracePeriodSeconds": 0}),
        (["soft-reboot", "one"], f"{VMIS}/one/softreboot", None),
        (["reset", "one"], f"{VMIS}/one/reset", None),
    ],
)
def test_the_call(kube: FakeKube, run: Run, args: list[str], path: str, body: Any) -> None:
    result = run(*args)
    assert result.exit_code == 0, result.output
    assert kube.requests == [("PUT", path, {}, body)]
    kind = "VMI" if path.startswith(f"{VMIS}/") else "VM"
    assert result.output.startswith(f"{kind} one was scheduled to {args[0]}")


@pytest.mark.parametrize(
    "args", [["stop", "one", "--force"], ["stop", "one", "--grace-period=0"], ["restart", "one", "--force"], ["start"]]
)
def test_wrong_usage_asks_no_server(kube: FakeKube, run: Run, args: list[str]) -> None:
    assert run(*args).exit_code == 1
    assert not kube.requests


def test_refusals_are_the_servers_own_words(kube: FakeKube, run: Run) -> None:
    kube.on_request = lambda *_: failure(409, "Conflict", "Operation cannot be fulfilled: VM is already running")
    result = run("start", "one")
    assert (result.exit_code, result.output) == (1, "Error: Operation cannot be fulfilled: VM is already running\n")


def test_a_missing_right_is_told_in_the_servers_words(kube: FakeKube, run: Run) -> None:
    kube.on_request = lambda *_: failure(401, "Unauthorized", "jane may not update virtualmachines/start")
    assert run("start", "one").output == "Error: jane may not update virtualmachines/start\n"
    kube.on_request = lambda *_: failure(401, "Unauthorized", "Unauthorized")
    assert "does not know you" in run("start", "one").output
