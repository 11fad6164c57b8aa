"""The command line from outside, against a fake API server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from framework.fake_kube import FakeKube, failure
from framework.machines import ALL, pod, upto, vmi

from virt_core.apis.base import to_plain
from virtctl.main import cli

VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances"

Run = Callable[..., Result]


def put(kube: FakeKube, obj: Any) -> None:
    meta = obj.metadata
    kinds = {"VirtualMachineInstance": VMIS, "Pod": "/api/v1/namespaces/default/pods", "VirtualMachine": VMS}
    kube.put(f"{kinds[obj.kind]}/{meta.name}", to_plain(obj))


def answer_put(kube: FakeKube, status: int = 200, message: str = "") -> None:
    answer = (200, b"", {}) if status == 200 else failure(status, "", message)
    kube.on_request = lambda method, *_: answer if method == "PUT" else None


@pytest.mark.parametrize("verb", ["pause", "unpause"])
def test_pause_and_unpause_call_the_subresource(kube: FakeKube, run: Run, verb: str) -> None:
    answer_put(kube)
    result = run(verb, "vmi", "guest")
    assert result.exit_code == 0, result.output
    assert f"VMI guest was scheduled to {verb}" in result.output
    assert kube.requests[-1] == ("PUT", f"{SUB}/guest/{verb}", {}, {})


def test_pause_vm_looks_for_the_vm_first(kube: FakeKube, run: Run) -> None:
    answer_put(kube)
    missing = run("pause", "vm", "guest")
    assert missing.exit_code == 1
    assert 'virtualmachines.kubevirt.io "guest" not found' in missing.output
    kube.put(f"{VMS}/guest", {})
    assert run("pause", "virtualmachines", "guest").exit_code == 0


def test_dry_run(kube: FakeKube, run: Run) -> None:
    answer_put(kube)
    assert "nothing was changed" in run("pause", "vmi/guest", "--dry-run").output
    assert kube.requests[-1][3] == {"dryRun": ["All"]}


def test_a_refusal_is_one_sentence_with_exit_code_one(kube: FakeKube, run: Run) -> None:
    answer_put(kube, 409, "VMI is already paused")
    result = run("pause", "vmi", "guest")
    assert (result.exit_code, result.output) == (1, "Error: VMI is already paused\n")


@pytest.mark.parametrize(
    "args", [["pause"], ["pause", "pod", "x"], ["pause", "vmi"], ["explode"], ["console", "a", "b", "c"]]
)
def test_wrong_usage_is_exit_code_one(run: Run, args: list[str]) -> None:
    assert run(*args).exit_code == 1


def test_flags_stand_before_or_after_the_command(kube: FakeKube, run: Run) -> None:
    answer_put(kube)
    run("-n", "one", "pause", "vmi", "guest")
    run("pause", "vmi", "guest", "-n", "two")
    run("-n", "one", "pause", "-n", "three", "vmi", "guest")
    namespaces = [path.split("/")[5] for _, path, _, _ in kube.requests]
    assert namespaces == ["one", "two", "three"]


def test_no_server_is_one_sentence(kube: FakeKube, run: Run) -> None:
    kube.down()
    result = run("pause", "vmi", "guest")
    assert result.exit_code == 1
    assert f"127.0.0.1:{kube.port}: connection refused" in result.output
    assert len(result.output.splitlines()) == 1


def test_no_kubeconfig_is_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["--kubeconfig", f"{tmp_path}/none", "explain", "vmi", "guest"])
    assert (result.exit_code, result.output) == (1, f"Error: kubeconfig {tmp_path}/none does not exist\n")


def test_version(kube: FakeKube, run: Run) -> None:
    kube.on_request = lambda *_: (200, {"gitVersion": "v9.9.9"}, {})
    result = run("version")
    assert "Client Version: " in result.output
    assert "Server Version: v9.9.9" in result.output
    assert "differ" in result.output
    kube.requests.clear()
    assert run("version", "--client").exit_code == 0
    assert not kube.requests


def test_explain_a_running_machine(kube: FakeKube, run: Run) -> None:
    machine = vmi("Running", ALL, nodeName="node1", interfaces=[{"name": "default", "ipAddress": "10.0.0.7"}])
    put(kube, machine)
    result = run("explain", "vmi", "guest")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "VirtualMachineInstance default/guest: Running on node1"
    assert lines[2].split()[:2] == ["STEP", "OWNER"]
    assert lines[3].split()[:3] == ["accepted", "virt-api", "12:00:00.000"]
    assert "10.0.0.7" in lines[-2]
    assert lines[-1] == "Next: virtctl console guest -n default"


def test_explain_shows_pods_and_events_of_a_machine_that_is_stuck(kube: FakeKube, run: Run) -> None:
    put(kube, vmi("Scheduling", upto("pod-created")))
    waiting = {"name": "compute", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    launcher = pod(containerStatuses=[waiting])
    launcher.metadata.labels = {"kubevirt.io/created-by": "u1"}
    put(kube, launcher)
    note = {"involvedObject": {"kind": "Pod", "name": launcher.metadata.name, "uid": "p1"}, "type": "Warning"}
    events = "/api/v1/namespaces/default/events"
    kube.put(f"{events}/e1", {**note, "reason": "Failed", "message": "pull failed", "count": 3})
    stranger = {"kind": "Pod", "name": launcher.metadata.name, "uid": "another"}
    kube.put(f"{events}/e2", {**note, "involvedObject": stranger, "message": "not ours"})
    output = run("explain", "vmi", "guest").output
    assert "Pod virt-launcher-guest-abc: Pending on node1\n" in output
    assert output.count("ErrImagePull: no such image") == 1, "the sentence has it, so the evidence does not"
    assert "Event Failed on Pod virt-launcher-guest-abc" in output
    assert "3 times): pull failed" in output
    assert "not ours" not in output
    assert "overdue" in output


def test_explain_without_the_right_to_read_pods(kube: FakeKube, run: Run) -> None:
    put(kube, vmi("Scheduling", upto("pod-created")))
    kube.on_request = lambda _m, path, *_: failure(403, "Forbidden", "no") if "/api/v1/" in path else None
    result = run("explain", "vmi", "guest")
    assert result.exit_code == 0
    assert "Pods: you may not read them" in result.output
    assert "Events: you may not read them" in result.output


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_explain_for_programs(kube: FakeKube, run: Run, form: str, load: Callable[[str], Any]) -> None:
    put(kube, vmi("Running", ALL, nodeName="node1"))
    document = load(run("explain", "vmi", "guest", "-o", form).output)
    assert (document["phase"], document["node"], document["standing"]["final"]) == ("Running", "node1", True)
    assert document["steps"][0]["name"] == "accepted"
    assert document["steps"][-1]["atS"] == pytest.approx(1.55)


def test_explain_what_does_not_exist(run: Run) -> None:
    result = run("explain", "vmi", "ghost")
    assert result.exit_code == 1
    assert "vmi default/ghost does not exist" in result.output


def test_explain_a_vm_without_instance(kube: FakeKube, run: Run) -> None:
    kube.put(f"{VMS}/guest", {"spec": {"runStrategy": "Halted"}})
    result = run("explain", "vm", "guest")
    assert "VirtualMachine default/guest: no instance" in result.output
    assert "runStrategy is Halted" in result.output


def test_explain_wait_tells_how_far_a_disk_is(kube: FakeKube, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each change when piped; it ends with what the disk ends with."""
    volumes = [{"name": name, "dataVolume": {"name": name}} for name in ("unseen", "root")]
    spec = {"domain": {"devices": {}}, "volumes": volumes}
    kube.put(f"{VMS}/guest", {"spec": {"runStrategy": "Always", "template": {"spec": spec}}})
    path = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes/root"
    kube.put(path, {"status": {"phase": "ImportInProgress", "progress": "12.00%"}})
    assert "is being filled: 12 % [##" in run("explain", "vm", "guest").output
    told = {"type": "Running", "status": "False", "message": "it is no disk"}
    rest = [{"phase": "ImportInProgress", "progress": "57.00%"}, {"phase": "Failed", "conditions": [told]}]
    monkeypatch.setattr("virtctl.explain.command.time.sleep", lambda _s: kube.put(path, {"status": rest.pop(0)}))
    result = run("explain", "vm", "guest", "--wait")
    assert result.exit_code == 1
    assert result.output.count("Its disk root is being filled\n") == 1
    assert "Its disk root cannot be filled: it is no disk." in result.output


def test_explain_a_vm_whose_instance_failed_and_is_gone(kube: FakeKube, run: Run) -> None:
    """Its Events outlive it; those of yet earlier ones are an old story."""
    failure = {"consecutiveFailCount": 2, "lastFailedVMIUID": "u9"}
    kube.put(f"{VMS}/guest", {"spec": {"runStrategy": "Always"}, "status": {"startFailure": failure}})
    for name, uid, message in (("e1", "u9", "no kernel in the image"), ("e2", "u8", "an old story")):
        about = {"kind": "VirtualMachineInstance", "name": "guest", "uid": uid}
        note = {"involvedObject": about, "type": "Warning", "reason": "SyncFailed", "message": message}
        kube.put(f"/api/v1/namespaces/default/events/{name}", note)
    output = run("explain", "vm", "guest").output
    assert "It failed to start 2 times in a row, and the next try is due: SyncFailed: no kernel in the image." in output
    assert "an old story" not in output


def test_explain_knows_virt_local_by_its_version(kube: FakeKube, run: Run) -> None:
    put(kube, vmi("Pending", upto("accepted")))
    version = {"gitVersion": "v1.36.0+virtpod-0.1.0.dev1.instance-lab"}
    kube.on_request = lambda _method, path, *_: (200, version, {}) if path.startswith("/version") else None
    assert run("explain", "vmi", "guest").output.endswith("Next: virt-local logs virt-controller --instance lab\n")


def test_explain_wait_follows_until_it_runs(kube: FakeKube, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put(kube, vmi("Pending", upto("accepted")))
    rest = [vmi("Scheduling", upto("pod-created")), vmi("Running", ALL, nodeName="node1")]
    monkeypatch.setattr("virtctl.explain.command.time.sleep", lambda _s: put(kube, rest.pop(0)))
    result = run("explain", "vmi", "guest", "--wait")
    assert result.exit_code == 0, result.output
    assert "It is Pending\n" in result.output
    assert "Running on node1" in result.output


def test_explain_wait_ends_with_one_when_it_failed_or_takes_too_long(kube: FakeKube, run: Run) -> None:
    put(kube, vmi("Failed", upto("handed-over"), reason="InvalidSpec"))
    assert run("explain", "vmi", "guest", "--wait").exit_code == 1
    put(kube, vmi("Pending", upto("accepted")))
    assert run("explain", "vmi", "guest", "--wait", "--timeout", "0").exit_code == 1


def test_help_imports_nothing_heavy() -> None:
    """`virtctl --help` must be instant: no client, no TLS, no websocket, no kubernetes."""
    code = (
        "import sys; from virtctl.main import cli; cli(['--help'], standalone_mode=False);"
        "heavy = ('urllib3', 'wsproto', 'h11', 'msgspec', 'yaml', 'kubernetes', 'structlog', 'ssl', 'asyncio');"
        "print('HEAVY', [m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert "HEAVY []" in done.stdout
    for name in ("console", "explain", "pause", "unpause", "version"):
        assert name in done.stdout
