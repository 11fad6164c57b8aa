"""`up` that ends in the middle of its capability probe, and `down` beside the probe of somebody else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from virt_local.node import kernel
from virt_local.node.runtime import cgroups

from .rig import BIN, Rig, eventually

pytestmark = pytest.mark.root


@pytest.fixture
def rig() -> Iterator[Rig]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    made = Rig("lfb", 228)
    try:
        yield made
    finally:
        done = made.local("down", "--purge")
        left = made.leftovers()
        kernel.unmount_below(made.data)
        shutil.rmtree(made.data, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    assert left == []


@pytest.fixture
def probing(rig: Rig) -> Iterator[subprocess.Popen[bytes]]:
    """`up` while the container of its probe runs."""
    flags = ("--port", str(rig.port), "--network-cidr", rig.network)
    with subprocess.Popen([str(BIN / "virt-local"), "up", *flags], env=rig.env, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: list((rig.data / "run").glob("oneshot-*/runc/*/state.json")), within_s=120)
            assert not list((rig.data / "node-info").glob(".virt-local-stamp")), "the probe is over already"
            yield process
        finally:
            process.kill()


def of_the_probe(rig: Rig) -> list[str]:
    """What it has on the machine besides its result."""
    run = rig.data / "run"
    left = [str(path) for name in ("oneshot-*", "probe-*") for path in run.glob(name)]
    left += [str(path) for path in kernel.mounts_below(run)]
    return left + [name for name in cgroups.children(f"/virtpod-{rig.name}") if "oneshot" in name]


def test_down_after_up_was_killed_in_its_probe(rig: Rig, probing: subprocess.Popen[bytes]) -> None:
    probing.kill()
    probing.wait(30)
    assert of_the_probe(rig), "there is nothing to clean"
    done = rig.local("down", "--purge")
    assert done.returncode == 0, done.stderr
    assert rig.leftovers() == []
    assert not rig.data.exists()


def test_up_after_up_was_killed_in_its_probe(rig: Rig, probing: subprocess.Popen[bytes]) -> None:
    probing.kill()
    probing.wait(30)
    done = rig.up()
    assert done.returncode == 0, done.stderr
    assert of_the_probe(rig) == []


def test_up_that_is_stopped_in_its_probe_leaves_nothing_of_it(rig: Rig, probing: subprocess.Popen[bytes]) -> None:
    """And does not wait for its end, which a busy machine may keep for minutes."""
    probing.send_signal(signal.SIGTERM)
    probing.wait(60)
    assert of_the_probe(rig) == []
    assert not list((rig.data / "node-info").glob(".virt-local-stamp")), "it has waited for the probe"


@pytest.fixture
def strangers() -> Iterator[str]:
    """The cgroup of a one-shot container that is not ours, whose process somebody waits for whom we do not see."""
    name = f"/virtpod-oneshot-999999999-{uuid.uuid4().hex}"
    process = subprocess.Popen(["sleep", "600"])
    try:
        cgroups.join(name, process.pid)
        yield name
    finally:
        process.kill()
        process.wait(10)
        cgroups.remove(name)


def test_down_leaves_the_containers_of_strangers_alone(rig: Rig, strangers: str) -> None:
    before = cgroups.processes(strangers)
    done = rig.local("down")
    assert done.returncode == 0, done.stderr
    assert cgroups.processes(strangers) == before
