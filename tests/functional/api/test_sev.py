"""Attestation of encrypted guests, step by step, and the cluster profiler: both over virt-api's real server."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from framework.waiting import eventually
from functional.api.rig import Rig, make_vmi
from functional.api.test_http import BEARER, call

from virt_api.subresources import profiler
from virt_core.apis.domain import SEV, LaunchSecurity, SEVAttestation

SESSION = b'{"session": "s", "dhCert": "d"}'
SECRET = b'{"header": "h", "secret": "x"}'


def encrypted(phase: str = "Running", *, paused: bool = False, **sev: Any) -> Any:
    vmi = make_vmi(phase=phase, conditions=("Paused",) if paused else ())
    vmi.spec.domain.launch_security = LaunchSecurity(sev=SEV(attestation=SEVAttestation(), **sev))
    return vmi


def ask(rig: Rig, method: str, name: str, body: bytes = b"") -> tuple[int, Any]:
    status, answer = call(rig, method, rig.sub(f"sev/{name}"), headers=BEARER, body=body)
    return status, answer


def test_the_papers_of_the_processor_before_and_while_the_guest_runs(rig: Rig) -> None:
    for phase in ("Scheduled", "Running"):
        rig.client.vmis["vm1"] = encrypted(phase)
        status, found = ask(rig, "GET", "fetchcertchain")
        assert (status, found["kind"], found["pdh"], found["certChain"]) == (200, "SEVPlatformInfo", "pdh", "chain")
    rig.client.vmis["vm1"] = encrypted("Scheduling")
    assert ask(rig, "GET", "fetchcertchain")[0] == 409


def test_a_session_is_set_up_once_before_the_start(rig: Rig) -> None:
    rig.client.vmis["vm1"] = encrypted("Scheduled")
    assert ask(rig, "PUT", "setupsession", SESSION)[0] == 202
    sev = rig.client.vmis["vm1"].spec.domain.launch_security.sev
    assert (sev.session, sev.dh_cert) == ("s", "d")
    assert ask(rig, "PUT", "setupsession", SESSION)[0] == 409
    rig.client.vmis["vm1"] = encrypted("Running")
    assert ask(rig, "PUT", "setupsession", SESSION)[0] == 409


@pytest.mark.parametrize("body", [b"", b"{}", b'{"session": "s"}', b'{"dhCert": "d"}', b"[]"])
def test_a_session_needs_both_parts_whoever_is_asked(rig: Rig, body: bytes) -> None:
    rig.client.vmis.clear()
    assert ask(rig, "PUT", "setupsession", body)[0] == 400


def test_measured_and_trusted_while_it_is_paused(rig: Rig) -> None:
    rig.client.vmis["vm1"] = encrypted(paused=True)
    status, found = ask(rig, "GET", "querylaunchmeasurement")
    assert status == 200
    assert {k: found[k] for k in ("measurement", "apiMajor", "apiMinor", "buildID", "policy", "loaderSHA")} == {
        "measurement": "m", "apiMajor": 1, "apiMinor": 2, "buildID": 3, "policy": 5, "loaderSHA": "sha",
    }  # fmt: skip
    assert ask(rig, "PUT", "injectlaunchsecret", SECRET)[0] == 200
    assert rig.node.commands == [("inject h x", "uid-vm1")]
    rig.client.vmis["vm1"] = encrypted()
    assert ask(rig, "GET", "querylaunchmeasurement")[0] == 409
    assert ask(rig, "PUT", "injectlaunchsecret", SECRET)[0] == 409


def test_a_guest_without_attestation_and_a_cluster_without_the_gate(rig: Rig) -> None:
    calls = (
        ("GET", "fetchcertchain", b""),
        ("GET", "querylaunchmeasurement", b""),
        ("PUT", "setupsession", SESSION),
        ("PUT", "injectlaunchsecret", SECRET),
    )
    for method, name, body in calls:
        rig.client.vmis["vm1"] = make_vmi()
        assert ask(rig, method, name, body)[0] == 409, name
        rig.client.vmis.clear()
        assert ask(rig, method, name, body)[0] == 404, name
    rig.settings.config = replace(rig.settings.config, feature_gates=frozenset())
    rig.client.vmis["vm1"] = encrypted(paused=True)
    for method, name, body in calls:
        assert ask(rig, method, name, body)[0] == 400, name
    assert not rig.node.commands


@pytest.fixture
def profiling(rig: Rig) -> Iterator[Rig]:
    rig.settings.config = replace(rig.settings.config, raw={"developerConfiguration": {"clusterProfiler": True}})
    yield rig
    profiler.PROFILER.stop()


def profile(rig: Rig, verb: str, body: bytes = b"") -> tuple[int, Any]:
    url = f"{rig.url}/apis/subresources.kubevirt.io/v1/{verb}-cluster-profiler"
    status, answer = call(rig, "GET", url, headers=BEARER, body=body)
    return status, answer


def test_the_profiler_is_off_by_default(rig: Rig) -> None:
    for verb in ("start", "stop", "dump"):
        assert profile(rig, verb)[0] == 403
    assert not profiler.PROFILER.running


def test_a_profile_of_virt_api(profiling: Rig) -> None:
    rig = profiling
    assert profile(rig, "start")[0] == 200
    eventually(lambda: profile(rig, "dump")[0] == 200)
    assert profile(rig, "stop")[0] == 200
    _, found = profile(rig, "dump")
    ((name, result),) = found["componentResults"].items()
    stacks = base64.b64decode(result["pprofData"]["stacks"]).decode()
    assert name.startswith("virt-api-")
    assert "MainThread;" in stacks
    assert stacks.splitlines()[0].rsplit(" ", 1)[1].isdigit()


def test_what_of_a_profile_is_asked_for(profiling: Rig) -> None:
    rig = profiling
    profile(rig, "start")
    eventually(lambda: profile(rig, "dump", b'{"labelSelector": "kubevirt.io=virt-api"}')[0] == 200)
    assert profile(rig, "dump", b'{"labelSelector": "kubevirt.io=virt-handler"}')[0] == 204
    assert profile(rig, "dump", b'{"labelSelector": "kubevirt.io"}')[0] == 400
    assert profile(rig, "dump", b'{"pageSize": 21}')[0] == 400


def test_a_forgotten_profiler_stops_by_itself() -> None:
    short = profiler.Profiler(interval_s=0.001, max_s=0.01)
    short.start()
    deadline = time.monotonic() + 5
    while short.running:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert short.dump()
