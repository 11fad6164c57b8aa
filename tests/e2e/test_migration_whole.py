"""A guest with all that can come and go moves to another node and back, and has all of it there."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import KUBEVIRT, Space, replace
from .console import Console
from .engine import Engine, VirtLocal, eventually
from .kubernetes import Kubernetes
from .manifests import with_volume
from .test_grow import processors, size
from .test_hotplug_disks import attachments, checksum, claim, disk_of, fill, gone, phase, without
from .test_migration import boot_of, ended, job, moves
from .test_secondary_networks import device, network, nic, source, status, template
from .vms import Machine, conditions, vm

__all__ = ["moves"]

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

USER_DATA = "#cloud-config\n# as it was when the guest started\n"


@pytest.fixture
def shared(moves: Space) -> Iterator[Space]:
    """With a claim that all nodes reach: a directory of this machine. libvirt sees that no other machine could have it,
    so the cluster must say that it may be used all the same."""
    engine: Engine = moves.engine
    if not (isinstance(engine, VirtLocal) or (isinstance(engine, Kubernetes) and engine.cluster.owned)):
        pytest.skip("needs nodes on this machine")
    name = f"shared-{moves.namespace}"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        Path(directory).chmod(0o777)
        moves.apply(volume(engine, name, directory))
        claim(moves, "data", "64Mi", accessModes=["ReadWriteMany"], storageClassName="by-hand", volumeName=name)
        before = engine.get(*KUBEVIRT)["spec"].get("configuration", {})
        allowed = {**before.get("migrations", {}), "unsafeMigrationOverride": True}
        replace(engine, {**before, "migrations": allowed})
        try:
            yield moves
        finally:
            replace(engine, before)
        moves.kubectl("delete", "vm", "--all", "--timeout=90s", timeout=100)
        moves.kubectl("delete", "pvc", "data", "--timeout=60s", timeout=90)
        moves.kubectl("delete", "pv", name, "--timeout=60s", timeout=90)


def volume(engine: Engine, name: str, directory: str) -> dict[str, Any]:
    nodes = [node["metadata"]["name"] for node in engine.get("nodes")["items"]]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "64Mi"},
            "storageClassName": "by-hand",
            "local": {"path": directory},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def started(space: Space) -> Machine:
    manifest = vm("whole", "Always")
    spec = manifest["spec"]["template"]["spec"]
    spec["domain"]["cpu"] = {"sockets": 1, "cores": 1, "threads": 1}
    spec["domain"]["memory"] = {"guest": "256Mi"}
    with_volume({"spec": spec}, "cloud", {"cloudInitNoCloud": {"userData": USER_DATA}})
    space.apply(manifest)
    machine = Machine(space, "whole")
    machine.printable("Running")
    return machine


def grown(machine: Machine, console: Console) -> tuple[str, str]:
    """Gives it a processor, a disk and a card while it runs. The disk's name in the guest, and the card's MAC."""
    space = machine.space
    size(machine, sockets=2)
    space.virtctl("addvolume", "whole", "--volume-name=data", "--serial=whole-data")
    template(machine, lambda nics, nets: (nics.append(nic("second")), nets.append(source("second", "plain"))))
    phase(space, "whole", "data")
    eventually(lambda: processors(console) == 2, within_s=60, what="two processors in the guest")
    told = eventually(
        lambda: (found := status(space, "whole")).get("infoSource", "").startswith("domain") and found,
        within_s=60,
        what="the second card in the machine",
    )
    device(console, told["mac"])
    return disk_of(console, "whole-data"), told["mac"]


def cloud_init_of(console: Console) -> str:
    """The whole image, read anew."""
    console.shell("echo 3 > /proc/sys/vm/drop_caches")
    return str(re.search(r"\b[0-9a-f]{32}\b", console.shell("md5sum < /dev/vda"))[0])  # type: ignore[index]


def moved(space: Space, number: int) -> dict[str, Any]:
    space.apply(job(f"move{number}", "whole"))
    done = ended(space, f"move{number}")
    assert done["status"]["phase"] == "Succeeded", done["status"]["migrationState"]["failureReason"]
    return dict(space.vmi("whole")["status"])


def test_all_of_it_moves_there_and_back(shared: Space) -> None:
    shared.apply(network("plain"))
    machine = started(shared)
    with shared.console("whole") as console:
        console.prompt()
        disk, mac = grown(machine, console)
        before = (boot_of(console), fill(console, disk), cloud_init_of(console))
        nodes = [shared.vmi("whole")["status"]["nodeName"]]
        for number in range(2):
            now = moved(shared, number)
            nodes.append(now["nodeName"])
            # The same virtctl: it has connected again by itself.
            console.prompt()
            assert (boot_of(console), checksum(console, disk), cloud_init_of(console)) == before
            assert processors(console) == 2
            device(console, mac)
            here(shared, now["nodeName"])
        assert nodes[0] != nodes[1]
        assert nodes[0] == nodes[2]
        changed(shared, console, disk, before[1])


def changed(space: Space, console: Console, disk: str, written: str) -> None:
    """What moved in with the machine can go, and come again."""
    assert "RestartRequired" not in conditions(space.vmi("whole")["status"])
    space.virtctl("removevolume", "whole", "--volume-name=data")
    without(console, disk)
    gone(space, "whole", "data")
    eventually(lambda: not attachments(space), within_s=60, what="nobody holds the claim")
    space.virtctl("addvolume", "whole", "--volume-name=data", "--serial=whole-data")
    phase(space, "whole", "data")
    assert checksum(console, disk_of(console, "whole-data")) == written


def here(space: Space, node: str) -> None:
    """What people are told is about the new place."""

    def check() -> bool:
        told = space.vmi("whole")["status"]
        [pod] = [uid for uid, where in told["activePods"].items() if where == node]
        pods = {p["metadata"]["uid"]: p for p in space.engine.get("-n", space.namespace, "pods")["items"]}
        holders = attachments(space)
        volumes = {each["name"]: each for each in told["volumeStatus"]}
        first = next(each for each in told["interfaces"] if each["name"] == "default")
        return (
            first["ipAddress"] == pods[pod]["status"]["podIP"]
            and [each["spec"]["nodeName"] for each in holders] == [node]
            and volumes["data"]["phase"] == "Ready"
            and volumes["data"]["hotplugVolume"]["attachPodUID"] == holders[0]["metadata"]["uid"]
            and conditions(told).get("AgentConnected") == "True"
        )

    eventually(check, within_s=60, what=f"the status of node {node}")
