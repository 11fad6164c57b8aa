"""Machines leave a node that is drained, and go on elsewhere as if nothing had happened; who may stay, stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .conftest import Space
from .engine import Engine, eventually
from .kubernetes import wanted
from .test_eviction import evict, with_strategy

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

NAMESPACE = f"e2e-{os.getpid()}-leave"
#: Fewer where the test makes the nodes itself: they share the machine with another virt-local.
GUESTS = tuple(f"leaver{number}" for number in range(5 if wanted() else 2))
FIRST = GUESTS[0]
TAINT = "kubevirt.io/drain"
EVACUATION = "kubevirt.io/evacuationMigration"
MOVE_S = 120.0


@contextmanager
def cordoned(engine: Engine, node: str) -> Iterator[None]:
    engine.kubectl("cordon", node)
    try:
        yield
    finally:
        engine.kubectl("uncordon", node)


def nodes(engine: Engine) -> list[str]:
    return sorted(node["metadata"]["name"] for node in engine.get("nodes")["items"])[:2]


@pytest.fixture(scope="module")
def leavers(pair: Engine) -> Iterator[Space]:
    """Guests on the first node, each with a word in its memory."""
    pair.kubectl("create", "namespace", NAMESPACE)
    space = Space(pair, NAMESPACE)
    try:
        with cordoned(pair, nodes(pair)[1]):
            for name in GUESTS:
                boot_with_word(space, name)
        yield space
    finally:
        pair.drop_namespace(NAMESPACE)


def boot_with_word(space: Space, name: str) -> None:
    """One after the other: guests that boot take all the processors there are."""
    space.boot(with_strategy(name, "LiveMigrate"))
    with space.console(name) as console:
        console.prompt(within_s=120)
        console.shell(f"echo word-of-{name} > /tmp/word")


def node_of(space: Space, name: str) -> str:
    return str(space.vmi(name)["status"]["nodeName"])


def jobs(space: Space, name: str) -> list[dict[str, Any]]:
    return [
        each for each in space.engine.get("-n", space.namespace, "vmim")["items"] if each["spec"]["vmiName"] == name
    ]


def budget(space: Space, name: str) -> Any:
    uid = space.vmi(name)["metadata"]["uid"]
    found = space.engine.get("-n", space.namespace, "pdb")["items"]
    return next((each for each in found if each["metadata"]["name"].endswith(uid)), None)


def is_marked(space: Space, name: str) -> bool:
    status = space.vmi(name)["status"]
    asked = any(each["type"] == "EvictionRequested" for each in status["conditions"])
    return asked and bool(status.get("evacuationNodeName"))


def is_free(space: Space, name: str) -> bool:
    status = space.vmi(name)["status"]
    asked = any(each["type"] == "EvictionRequested" for each in status["conditions"])
    return not asked and "evacuationNodeName" not in status


def assert_lives_on(space: Space, name: str, node: str) -> None:
    assert node_of(space, name) == node
    assert_lives(space, name)


def assert_lives(space: Space, name: str) -> None:
    assert space.vmi(name)["status"]["phase"] == "Running"
    with space.console(name) as console:
        console.prompt(within_s=120)
        assert f"word-of-{name}" in console.shell("cat /tmp/word"), "it is the same guest, not a new one"


def test_who_may_stay_after_all_is_not_moved(leavers: Space) -> None:
    """Nobody else takes the machine, so its job waits; then the evacuation is called off."""
    home, other = node_of(leavers, FIRST), nodes(leavers.engine)[1]
    assert home != other
    assert eventually(lambda: budget(leavers, FIRST), within_s=30)["spec"]["minAvailable"] == 1
    with cordoned(leavers.engine, other):
        refused = evict(leavers, FIRST)
        assert refused.returncode != 0
        assert "Eviction triggered evacuation of VMI" in refused.stderr
        job = eventually(lambda: jobs(leavers, FIRST), within_s=30, what="a job for the evacuation")[0]
        assert job["metadata"]["annotations"][EVACUATION] == home
        assert job["metadata"]["name"].startswith("kubevirt-evacuation-")
        eventually(lambda: is_marked(leavers, FIRST), within_s=30, what="the wish to leave")
        eventually(
            lambda: budget(leavers, FIRST)["spec"]["minAvailable"] == 2, within_s=30, what="a budget for two Pods"
        )
        assert "Evacuation in progress" in evict(leavers, FIRST).stderr
        leavers.virtctl("evacuate-cancel", "vmi", FIRST)
        eventually(lambda: not jobs(leavers, FIRST), within_s=60, what="the end of the job")
        eventually(lambda: is_free(leavers, FIRST), within_s=30, what="no wish to leave")
    pods = ("-n", leavers.namespace, "pods", "-l", f"vmi.kubevirt.io/id={FIRST}")
    eventually(lambda: len(leavers.engine.get(*pods)["items"]) == 1, within_s=60, what="one Pod")
    eventually(lambda: budget(leavers, FIRST)["spec"]["minAvailable"] == 1, within_s=30, what="a budget for one Pod")
    assert_lives_on(leavers, FIRST, home)


@pytest.mark.timeout(600)
def test_a_drained_node_is_left_by_all(leavers: Space) -> None:
    engine, (home, other) = leavers.engine, nodes(leavers.engine)
    try:
        done = engine.run(
            "kubectl", "drain", home, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s", timeout=320
        )
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        engine.kubectl("uncordon", home)
    for name in GUESTS:
        assert_lives_on(leavers, name, other)
        assert is_free(leavers, name)
        phases = [job["status"]["phase"] for job in jobs(leavers, name)]
        assert phases.count("Succeeded") == 1, phases
    on_home = engine.get("-n", leavers.namespace, "pods", "--field-selector", f"spec.nodeName={home}")["items"]
    assert [pod["metadata"]["name"] for pod in on_home if pod["status"]["phase"] == "Running"] == []


def test_the_drain_taint_moves_machines_too(leavers: Space) -> None:
    for name in GUESTS[1:]:
        leavers.kubectl("delete", "vmi", name, "--wait=false")
    leavers.kubectl("wait", "--for=delete", *(f"vmi/{name}" for name in GUESTS[1:]), "--timeout=90s", timeout=100)
    engine, left = leavers.engine, node_of(leavers, FIRST)
    engine.kubectl("taint", "node", left, f"{TAINT}=:NoSchedule")
    try:
        asked = engine.run("virtctl", "-n", leavers.namespace, "evacuate-cancel", "vmi", FIRST)
        assert asked.returncode != 0 or node_of(leavers, FIRST) != left, "it would have to leave again at once"
        eventually(lambda: node_of(leavers, FIRST) != left, within_s=MOVE_S, what="another node")
    finally:
        engine.kubectl("taint", "node", left, f"{TAINT}-")
    assert_lives_on(leavers, FIRST, node_of(leavers, FIRST))


def test_a_machine_that_cannot_move_is_told_why(leavers: Space) -> None:
    """Its node keeps it, and it says why: to who evicts it, and to who looks at it."""
    manifest = with_strategy("tied", "LiveMigrate")
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "bridge": {}}]
    node = leavers.boot(manifest)["status"]["nodeName"]
    engine = leavers.engine
    refused = evict(leavers, "tied")
    assert refused.returncode != 0
    assert "cannot: a bridge on the Pod network" in refused.stderr
    engine.kubectl("taint", "node", node, f"{TAINT}=:NoSchedule")
    try:
        told = ("get", "events", "--field-selector", "involvedObject.name=tied,reason=FailedMigration")
        eventually(lambda: "cannot be moved" in leavers.kubectl(*told), within_s=30, what="an Event")
    finally:
        engine.kubectl("taint", "node", node, f"{TAINT}-")
    found = leavers.vmi("tied")["status"]
    assert (found["phase"], found["nodeName"]) == ("Running", node)
    assert "evacuationNodeName" not in found
