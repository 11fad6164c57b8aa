"""A launcher of the last release on a real cluster: its guest boots, answers, and outlives a new handler."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.protocompat import read_frozen

from tests.cluster import Cluster
from tests.e2e.conftest import Space
from tests.e2e.engine import ROOT, Engine, eventually
from tests.e2e.manifests import kernel_boot

from .olderimage import GOLDEN, NoHistoryError, make

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

ARCHIVE = ROOT / ".build" / "images" / "virt-launcher.tar"
OLDER = "virtpod.internal/virt-launcher:older"
CONTROLLER = ("-n", "virtpod", "deployment/virt-controller")


def rolled_out(cluster: Cluster) -> None:
    cluster.kubectl("rollout", "status", *CONTROLLER, "--timeout=120s", timeout=140)


@pytest.fixture
def older_launcher(owned: Cluster, tmp_path: Path) -> Iterator[str]:
    """VMIs get the older image for the time of the test; $VIRTPOD_OLD_LAUNCHER names one that the nodes have."""
    image = os.environ.get("VIRTPOD_OLD_LAUNCHER", "")
    if not image:
        if not ARCHIVE.exists():
            pytest.skip("needs .build/images/virt-launcher.tar: run `make images`")
        try:
            owned.load(make(ARCHIVE, OLDER, tmp_path / "older"), name=OLDER)
        except NoHistoryError as error:
            pytest.skip(str(error))
        image = OLDER
    deployment = owned.get("-n", "virtpod", "deployment", "virt-controller")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    before = container["args"]
    after = [f"--launcher-image={image}" if word.startswith("--launcher-image=") else word for word in before]
    assert after != before, "virt-controller is not told its launcher image by --launcher-image="
    _set_arguments(owned, after)
    try:
        yield image
    finally:
        _set_arguments(owned, before)


def _set_arguments(cluster: Cluster, arguments: list[str]) -> None:
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": arguments}]
    cluster.kubectl("patch", *CONTROLLER, "--type=json", "-p", json.dumps(patch))
    rolled_out(cluster)


def known_messages(space: Space, pod: str) -> set[str]:
    """The messages that the launcher in a Pod can make."""
    ask = "from virt_protos.launcher.v1 import launcher_pb2 as pb; print(*pb.DESCRIPTOR.message_types_by_name)"
    return set(space.kubectl("exec", pod, "-c", "compute", "--", "python3", "-c", ask).split())


def frozen_messages() -> set[str]:
    return {message.name for message in read_frozen(GOLDEN)["virt_protos/launcher/v1/launcher.proto"].message_type}


def answers(space: Space, name: str, mark: str) -> bool:
    with space.console(name) as console:
        console.prompt()
        return mark in console.shell(f"echo {mark}", within_s=10)


def paused(space: Space, name: str) -> bool:
    return any(c["type"] == "Paused" and c["status"] == "True" for c in space.vmi(name)["status"]["conditions"])


def test_older_launcher_works_under_a_new_handler(
    owned: Cluster, engine: Engine, space: Space, older_launcher: str
) -> None:
    space.boot(kernel_boot("old"))
    (pod,) = engine.get("-n", space.namespace, "pods")["items"]
    assert pod["spec"]["containers"][0]["image"] == older_launcher
    if older_launcher == OLDER:
        assert known_messages(space, pod["metadata"]["name"]) == frozen_messages()
    qemu = engine.qemu_pid(space.namespace, "old")
    assert answers(space, "old", "before")
    space.virtctl("pause", "vmi", "old")
    eventually(lambda: paused(space, "old"), within_s=20, what="paused")
    space.virtctl("unpause", "vmi", "old")
    eventually(lambda: not paused(space, "old"), within_s=20, what="unpaused")
    owned.kubectl("-n", "virtpod", "rollout", "restart", "daemonset/virt-handler")
    owned.kubectl("-n", "virtpod", "rollout", "status", "daemonset/virt-handler", "--timeout=120s", timeout=140)
    eventually(lambda: answers(space, "old", "after"), within_s=60, what="the console under the new handler")
    assert engine.qemu_pid(space.namespace, "old") == qemu
    space.kubectl("delete", "vmi", "old", "--timeout=60s", timeout=80)
