"""The containers of virtiofsd in the launcher Pod, and what is made of their end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from framework.vmis import CREATED, handed_over, plain_pod, vmi

from virt_controller.launcher_pod import TemplateConfig, UnsupportedSpecError, render
from virt_controller.vmi.decide import STUCK_AFTER_END_S, decide, scheduling
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.pods import Pod
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.storage import PersistentVolumeClaim, PersistentVolumeClaimSpec
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition
from virt_core.kube.configvalues import ClusterConfig

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)


def claim(name: str, mode: str = "Filesystem") -> PersistentVolumeClaim:
    return PersistentVolumeClaim(metadata=ObjectMeta(name=name), spec=PersistentVolumeClaimSpec(volume_mode=mode))


OPEN = TemplateConfig(
    "example.internal/launcher:v1",
    cluster=ClusterConfig(feature_gates=frozenset({"EnableVirtioFsStorageVolumes", "ContainerPathVolumes"})),
    claims={"c": claim("c"), "raw": claim("raw", "Block")},
)
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
PATH = {"name": "path", "containerPath": {"path": "/var/run/secrets/cloud"}}
CONF = {"name": "conf", "configMap": {"name": "conf"}}


def sharing(*volumes: dict[str, Any], disks: tuple[str, ...] = (), **domain: Any) -> VirtualMachineInstance:
    devices = {
        "disks": [{"name": name, "disk": {}} for name in disks],
        "filesystems": [{"name": volume["name"], "virtiofs": {}} for volume in volumes],
    }
    shown = {"memory": {"guest": "128Mi"}, "devices": devices} | domain
    return vmi(spec={"domain": shown, "volumes": list(volumes)})


def containers(machine: VirtualMachineInstance) -> dict[str, Any]:
    plain: Any = to_plain(render(machine, OPEN).spec)
    return {container["name"]: container for container in plain["containers"]}


def test_each_filesystem_has_a_container_that_sees_its_volume_and_nothing_else() -> None:
    found = containers(sharing(DATA, CONF))
    assert list(found) == ["compute", "virtiofs-data", "virtiofs-conf"]
    sockets = {"name": "virtiofs-containers", "mountPath": names.PATH_SHARE_SOCKETS}
    assert found["virtiofs-data"]["volumeMounts"] == [sockets, {"name": "volume-0", "mountPath": names.PATH_SHARED}]
    read_only = {"name": "volume-1", "mountPath": names.PATH_SHARED, "readOnly": True}
    assert found["virtiofs-conf"]["volumeMounts"] == [sockets, read_only]
    seen = {mount["name"] for mount in found["compute"]["volumeMounts"]}
    assert "virtiofs-containers" in seen
    assert not seen & {"volume-0", "volume-1"}


def test_it_has_no_right_that_it_could_lose() -> None:
    context = containers(sharing(CONF))["virtiofs-conf"]["securityContext"]
    assert context == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_a_volume_that_is_a_disk_too_stays_in_the_launchers_container() -> None:
    seen = {mount["name"] for mount in containers(sharing(CONF, disks=("conf",)))["compute"]["volumeMounts"]}
    assert "volume-0" in seen


def test_a_token_is_where_the_api_server_puts_it() -> None:
    machine = sharing({"name": "token", "serviceAccount": {"serviceAccountName": "robot"}})
    container = containers(machine)["virtiofs-token"]
    assert container["args"][2:] == ["--directory", names.PATH_SERVICE_ACCOUNT, "--as-root"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["virtiofs-containers"]


def test_a_path_of_the_container_is_what_others_mount_there() -> None:
    container = containers(sharing(PATH))["virtiofs-path"]
    assert container["args"][2:] == ["--directory", "/var/run/secrets/cloud", "--as-root", "--mounted"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["virtiofs-containers"]


def test_memory_of_the_guest_may_count_for_virtiofsd() -> None:
    resources = containers(sharing(CONF))["virtiofs-conf"]["resources"]
    assert (resources["requests"], resources["limits"]["cpu"]) == ({"cpu": "10m", "memory": "1000000"}, "100m")
    assert parse_bytes(resources["limits"]["memory"]) == 80 * 10**6 + (128 << 20)
    own = containers(sharing(CONF, cpu={"cores": 1, "dedicatedCpuPlacement": True}))["virtiofs-conf"]["resources"]
    assert own["requests"] == own["limits"], "else the Pod would not be Guaranteed"


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ({"name": "v", "persistentVolumeClaim": {"claimName": "raw"}}, "volume mode Block"),
        ({"name": "v", "emptyDisk": {"capacity": "1Gi"}}, "of the kind emptyDisk cannot be shared"),
        ({"name": "v", "containerDisk": {"image": "i"}}, "of the kind containerDisk cannot be shared"),
    ],
)
def test_what_cannot_be_shared_is_named(volume: dict[str, Any], why: str) -> None:
    with pytest.raises(UnsupportedSpecError, match=rf"spec.volumes\[0\] \(v\): .*{why}"):
        render(sharing(volume), OPEN)


def test_the_gate_is_asked_again() -> None:
    """It may have closed since the VMI was accepted."""
    closed = TemplateConfig("example.internal/launcher:v1", claims=OPEN.claims)
    for volume, gate in ((DATA, "EnableVirtioFsStorageVolumes"), (PATH, "ContainerPathVolumes")):
        with pytest.raises(UnsupportedSpecError, match=gate):
            render(sharing(volume), closed)
    assert len(render(sharing(CONF), closed).spec.containers) == 2


def test_a_long_name_fits_a_container() -> None:
    name = "v" * 63
    assert len(containers(sharing({"name": name, "configMap": {"name": "c"}})).popitem()[0]) <= 63


def pod(**ended: Any) -> Pod:
    """A launcher that runs, beside a virtiofsd that ended so; it runs too where nothing is said."""
    plain = plain_pod(phase="Running", state={"running": {"startedAt": CREATED}})
    state = {"terminated": {"finishedAt": CREATED, **ended}} if ended else {"running": {"startedAt": CREATED}}
    plain["status"]["containerStatuses"].append({"name": "virtiofs-data", "state": state})
    return from_plain(plain, Pod)


def test_a_machine_whose_virtiofsd_does_not_start_fails_with_its_last_words() -> None:
    decision = decide(handed_over("Scheduled"), [pod(exitCode=1, message="virt-share: no virtiofsd")], NOW)
    assert decision.vmi is not None
    assert decision.vmi.status.phase == "Failed"
    (note,) = decision.notes
    assert note.reason == "MissingVirtiofsContainers"
    assert note.message.endswith("the container virtiofs-data exited with code 1: virt-share: no virtiofsd")


def test_a_guest_goes_on_without_its_files_and_it_is_told_once() -> None:
    first = decide(handed_over("Running"), [pod(exitCode=137, reason="OOMKilled")], NOW)
    assert first.vmi is not None
    told = get_condition(first.vmi.status.conditions, names.CONDITION_SYNCHRONIZED)
    assert told is not None
    assert (first.vmi.status.phase, told.status, told.reason) == ("Running", "False", "MissingVirtiofsContainers")
    assert "exited with code 137 (OOMKilled)" in told.message
    assert len(first.notes) == 1
    assert decide(first.vmi, [pod(exitCode=137, reason="OOMKilled")], NOW).notes == ()


def test_the_end_of_qemus_connection_is_no_trouble() -> None:
    assert decide(handed_over("Running"), [pod(exitCode=0)], NOW).notes == ()


def test_what_still_runs_long_after_the_machine_goes() -> None:
    """A virtiofsd that QEMU never met waits for ever."""
    plain = plain_pod(phase="Running", state={"terminated": {"exitCode": 1, "finishedAt": CREATED}})
    plain["status"]["containerStatuses"].append({"name": "virtiofs-data", "state": {"running": {"startedAt": CREATED}}})
    left = from_plain(plain, Pod)
    stamps = [{"phase": "Failed", "phaseTransitionTimestamp": CREATED}]
    over = handed_over("Failed", status={"phaseTransitionTimestamps": stamps})
    assert decide(over, [left], NOW).recheck_s > 0
    assert decide(over, [left], NOW + timedelta(seconds=STUCK_AFTER_END_S)).delete_pods == (left,)


def test_an_image_that_cannot_be_had_is_told_for_each_container() -> None:
    plain = plain_pod(state={"waiting": {"reason": "ContainerCreating"}})
    waiting = {"reason": "ErrImagePull", "message": "no such thing"}
    plain["spec"]["containers"].append({"name": "virtiofs-data", "image": "example.internal/other:v1"})
    plain["status"]["containerStatuses"].append({"name": "virtiofs-data", "state": {"waiting": waiting}})
    unstarted = from_plain(plain, Pod)
    decision = decide(scheduling(vmi(), unstarted.metadata.uid, NOW), [unstarted], NOW)
    (note,) = decision.notes
    assert 'the image of the container virtiofs-data "example.internal/other:v1" is not available' in note.message
