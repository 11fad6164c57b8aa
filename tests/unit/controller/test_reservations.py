"""A machine that may reserve a shared disk: its way to the helper, and its distance from others that may."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import vmi

from virt_controller.launcher_pod import NotPermittedError, TemplateConfig, render
from virt_controller.launcher_pod.sections import Move
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.kube.configvalues import ClusterConfig

ALLOWED = ClusterConfig(persistent_reservation=True)
LABEL = "pr.kubevirt.io/1111-2222"


def machine(reservation: bool = True, **spec: Any) -> Any:
    disks = [{"name": "root", "disk": {}}, {"name": "shared", "lun": {"bus": "scsi", "reservation": reservation}}]
    volumes = [
        {"name": "root", "emptyDisk": {"capacity": "1Gi"}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "quorum"}},
    ]
    return vmi(spec={"domain": {"devices": {"disks": disks}}, "volumes": volumes, **spec})


def pod_of(found: Any, cluster: ClusterConfig = ALLOWED, name: str = "quorum", **more: Any) -> Pod:
    plain = {"metadata": {"name": name, "uid": "1111-2222"}, "spec": {"volumeMode": "Block"}}
    claims = {"quorum": from_plain(plain, PersistentVolumeClaim)}
    return render(found, TemplateConfig("launcher:v1", cluster=cluster, claims=claims, **more))


def test_the_helper_is_asked_of_the_node_and_no_path_of_it_is_named() -> None:
    pod = pod_of(machine())
    resources = pod.spec.containers[0].resources
    assert resources is not None
    assert (
        resources.limits["devices.kubevirt.io/pr-helper"] == resources.requests["devices.kubevirt.io/pr-helper"] == "1"
    )
    assert "hostPath" not in str(to_plain(pod.spec))


def test_two_machines_that_may_reserve_one_claim_are_on_two_nodes() -> None:
    pod = pod_of(machine())
    assert pod.metadata.labels[LABEL] == "quorum"
    [term] = to_plain(pod.spec)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"] == {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}


def test_what_the_user_and_a_move_say_of_other_pods_stays() -> None:
    own = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    wish = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own]}}
    pod = pod_of(machine(affinity=wish), move=Move("job", "uid"))
    terms = to_plain(pod.spec)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms[0] == own
    assert len(terms) == 3


def test_a_lun_without_reservation_needs_none_of_it() -> None:
    pod = pod_of(machine(reservation=False), ClusterConfig())
    assert LABEL not in pod.metadata.labels
    assert pod.spec.affinity is None
    resources = pod.spec.containers[0].resources
    assert resources is not None
    assert names.RESOURCE_RESERVATIONS not in resources.limits


def test_a_cluster_that_has_taken_it_back_makes_no_such_pod() -> None:
    with pytest.raises(NotPermittedError, match=r"spec\.domain\.devices\.disks"):
        pod_of(machine(), ClusterConfig())


def test_a_long_name_of_a_claim_is_still_a_label() -> None:
    pod = pod_of(machine(), name="c" * 62 + "-" + "d" * 100)
    assert pod.metadata.labels[LABEL] == "c" * 62
