"""The launcher Pod: golden files, and the promises that must hold for every VMI."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from framework.vmis import UID, handed_over, vmi

from virt_controller.launcher_pod import (
    Move,
    NotPermittedError,
    TemplateConfig,
    UnsupportedSpecError,
    first_consumer,
    render,
)
from virt_controller.launcher_pod import memory as overheads
from virt_controller.launcher_pod import volumes as sources
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podparts import PodResourceClaim
from virt_core.apis.podroles import Role, role_of
from virt_core.apis.podvolumes import PersistentVolumeClaimSpec
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.scheduling import Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig

GOLDEN = Path(__file__).parent / "golden"
CONFIG = TemplateConfig("example.internal/launcher:v1")
KVM = TemplateConfig("example.internal/launcher:v1", kvm=True, vhost_net=True)


def kernel_boot() -> VirtualMachineInstance:
    container = {
        "image": "example.internal/kernel:v1",
        "imagePullSecret": "pull",
        "kernelPath": "/k",
        "initrdPath": "/i",
    }
    domain = {"memory": {"guest": "1Gi"}, "firmware": {"kernelBoot": {"container": container}}, "devices": {}}
    return vmi("boot", spec={"domain": domain, "networks": [], "volumes": []})


def rich() -> VirtualMachineInstance:
    return vmi(
        "rich",
        metadata={"labels": {"app": "web"}, "annotations": {"note": "x", "kubectl.kubernetes.io/last-applied": "y"}},
        spec={
            "hostname": "web.example",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "domain": {
                "cpu": {"cores": 2, "sockets": 2},
                "memory": {"guest": "2Gi"},
                "resources": {"requests": {"memory": "1Gi"}, "limits": {"cpu": "4", "memory": "3Gi"}},
                "devices": {
                    "interfaces": [{"name": "default", "masquerade": {}, "ports": [{"name": "http", "port": 80}]}]
                },
            },
            "volumes": [
                {"name": "root", "containerDisk": {"image": "example.internal/a:v1", "imagePullPolicy": "Always"}},
                {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
                {
                    "name": "init",
                    "cloudInitNoCloud": {"secretRef": {"name": "user"}, "networkDataSecretRef": {"name": "net"}},
                },
            ],
        },
    )


def claim(name: str, mode: str = "Filesystem") -> PersistentVolumeClaim:
    return PersistentVolumeClaim(metadata=ObjectMeta(name=name), spec=PersistentVolumeClaimSpec(volume_mode=mode))


STORAGE = TemplateConfig(
    "example.internal/launcher:v1",
    cluster=ClusterConfig(feature_gates=frozenset({"HostDisk"})),
    claims={name: claim(name, "Block" if name == "raw" else "Filesystem") for name in ("c", "dv", "raw", "base")},
)
VOLUMES: list[dict[str, Any]] = [
    {"name": "file", "persistentVolumeClaim": {"claimName": "c"}},
    {"name": "file-ro", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
    {"name": "block", "persistentVolumeClaim": {"claimName": "raw"}},
    {"name": "imported", "dataVolume": {"name": "dv"}},
    {"name": "layer", "ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}},
    {"name": "conf", "configMap": {"name": "conf", "optional": True, "volumeLabel": "x"}},
    {"name": "hush", "secret": {"secretName": "hush"}},
    {"name": "self", "downwardAPI": {"fields": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    {"name": "answers", "sysprep": {"secret": {"name": "win"}}},
    {"name": "token", "serviceAccount": {"serviceAccountName": "robot"}},
]


def storage() -> VirtualMachineInstance:
    return vmi("storage", spec={"volumes": VOLUMES})


def credentials() -> VirtualMachineInstance:
    def key(secret: str, **method: Any) -> dict[str, Any]:
        return {"sshPublicKey": {"source": {"secret": {"secretName": secret}}, "propagationMethod": method}}

    password = {"source": {"secret": {"secretName": "words"}}, "propagationMethod": {"qemuGuestAgent": {}}}
    given = [key("keys", noCloud={}), key("keys", qemuGuestAgent={"users": ["root"]}), {"userPassword": password}]
    return vmi("credentials", spec={"accessCredentials": given})


def probed() -> VirtualMachineInstance:
    return vmi(
        "probed",
        spec={
            "readinessProbe": {"exec": {"command": ["test", "-e", "/ready"]}, "periodSeconds": 5, "timeoutSeconds": 3},
            "livenessProbe": {"guestAgentPing": {}, "initialDelaySeconds": 20, "failureThreshold": 4},
        },
    )


def machine(**domain: Any) -> VirtualMachineInstance:
    return vmi(spec={"domain": {"memory": {"guest": "1Gi"}, "devices": {}, **domain}, "networks": [], "volumes": []})


OWN = {"cores": 2, "sockets": 1, "threads": 2, "dedicatedCpuPlacement": True}
PAGES = {"guest": "1Gi", "hugepages": {"pageSize": "2048Ki"}}

CASES = {
    "base": (vmi(), CONFIG),
    "kvm": (vmi(), KVM),
    "kernel-boot": (kernel_boot(), CONFIG),
    "rich": (rich(), CONFIG),
    "probed": (probed(), CONFIG),
    "pinned": (machine(cpu=OWN | {"isolateEmulatorThread": True}), KVM),
    "hugepages": (machine(memory=PAGES), KVM),
}
#: Not in all of them: a guest that is to have a token, and a directory of the node.
GOLDENS = CASES | {"storage": (storage(), STORAGE)}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str) -> None:
    """Set VIRT_UPDATE_GOLDEN=1 to write the files anew, and read the difference."""
    text = json.dumps(to_plain(render(*GOLDENS[name])), indent=1, sort_keys=True) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("VIRT_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_passes_the_restricted_pod_security_level(name: str) -> None:
    spec: dict[str, Any] = to_plain(render(*CASES[name]).spec)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    allowed = {"configMap", "emptyDir", "secret", "image", "projected", "downwardAPI", "persistentVolumeClaim"}
    assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", CASES)
def test_every_mount_has_its_volume(name: str) -> None:
    spec = render(*CASES[name]).spec
    volumes = [volume.name for volume in spec.volumes]
    mounts = [mount.name for mount in spec.containers[0].volume_mounts]
    assert sorted(volumes) == sorted(mounts)
    assert len(set(volumes)) == len(volumes)


def test_owner_is_the_vmi_by_uid() -> None:
    (ref,) = render(vmi(), CONFIG).metadata.owner_references
    assert (ref.kind, ref.uid, ref.controller) == ("VirtualMachineInstance", vmi().metadata.uid, True)


def test_grace_periods_nest() -> None:
    """Guest within launcher within Pod."""
    pod = render(vmi(spec={"terminationGracePeriodSeconds": 20}), CONFIG)
    args = pod.spec.containers[0].args
    assert args[args.index("--grace-period-seconds") + 1] == "35"
    assert pod.spec.termination_grace_period_seconds == 50


@pytest.mark.parametrize(
    ("annotation", "value", "switch"),
    [
        (names.ANNOTATION_FAIL_FAST, "", "--fail-fast"),
        (names.ANNOTATION_KEEP_LAUNCHER, "true", "--keep-after-failure"),
        (names.ANNOTATION_KEEP_LAUNCHER, "", "--keep-after-failure"),
        (names.ANNOTATION_KEEP_LAUNCHER, "false", ""),
    ],
)
def test_annotations_for_who_looks_into_failures(annotation: str, value: str, switch: str) -> None:
    args = render(vmi(metadata={"annotations": {annotation: value}}), KVM).spec.containers[0].args
    assert [arg for arg in args if arg in ("--fail-fast", "--keep-after-failure")] == ([switch] if switch else [])


def test_devices_are_asked_for_only_if_somebody_has_them() -> None:
    plain = render(vmi(), CONFIG).spec.containers[0]
    assert plain.resources is not None
    assert plain.resources.limits == {names.RESOURCE_TUN: "1"}
    assert "--allow-emulation" in plain.args
    fast = render(vmi(), KVM).spec.containers[0]
    assert fast.resources is not None
    assert set(fast.resources.limits) == {names.RESOURCE_KVM, names.RESOURCE_TUN, names.RESOURCE_VHOST_NET}
    assert "--allow-emulation" not in fast.args


def test_no_tap_without_a_nic() -> None:
    resources = render(kernel_boot(), CONFIG).spec.containers[0].resources
    assert resources is not None
    assert names.RESOURCE_TUN not in resources.requests


def test_memory_is_guest_plus_overhead() -> None:
    resources = render(vmi(), CONFIG).spec.containers[0].resources
    assert resources is not None
    extra = overheads.overhead(vmi(), emulated=True)
    assert parse_bytes(resources.requests["memory"]) == 128 * overheads.MIB + extra
    assert extra < 288 * overheads.MIB, "more than the Go system books"


GPU = {"name": "g", "deviceName": "example.com/gpu"}
PERMITTED = {
    "pciHostDevices": [{"pciVendorSelector": "10de:1eb8", "resourceName": "example.com/gpu"}],
    "mediatedDevices": [{"mdevNameSelector": "t", "resourceName": "b", "externalResourceProvider": True}],
    "usb": [{"resourceName": "example.com/stick", "selectors": [{"vendor": "1", "product": "2"}]}],
}


def with_node_devices(**devices: Any) -> VirtualMachineInstance:
    return vmi(spec={"domain": {"memory": {"guest": "128Mi"}, "devices": devices}, "networks": []})


def test_devices_of_the_node_are_asked_for_by_count() -> None:
    machine = with_node_devices(
        gpus=[GPU, GPU | {"name": "h"}], hostDevices=[{"name": "s", "deviceName": "example.com/stick"}]
    )
    config = replace(CONFIG, cluster=ClusterConfig(permitted_host_devices=PERMITTED))
    resources = render(machine, config).spec.containers[0].resources
    assert resources is not None
    for amounts in (resources.requests, resources.limits):
        assert (amounts["example.com/gpu"], amounts["example.com/stick"]) == ("2", "1")


def test_a_device_of_a_claim_is_asked_for_by_the_claim() -> None:
    """Whose device it may be is said by the claim's device class, so nobody needs to permit it."""
    machine = with_node_devices(
        gpus=[{"name": "g", "claimName": "own", "requestName": "gpu"}],
        hostDevices=[{"name": "h", "claimName": "shared", "requestName": "card"}],
    )
    declared = [
        {"name": "own", "resourceClaimTemplateName": "gpus"},
        {"name": "shared", "resourceClaimName": "card"},
    ]
    machine.spec.resource_claims = [from_plain(each, PodResourceClaim) for each in declared]
    plain = to_plain(render(machine, CONFIG))
    assert plain["spec"]["resourceClaims"] == declared
    resources = plain["spec"]["containers"][0]["resources"]
    assert resources["claims"] == [{"name": "own", "request": "gpu"}, {"name": "shared", "request": "card"}]
    assert set(resources.get("limits", {})) == set()


@pytest.mark.parametrize("permitted", [{}, {"usb": PERMITTED["usb"]}])
def test_a_device_that_nobody_permits_is_not_asked_for(permitted: dict[str, Any]) -> None:
    """Nor is anything else that has such a name: `cpu` as a GPU would be the Pod's CPUs."""
    config = replace(CONFIG, cluster=ClusterConfig(permitted_host_devices=permitted))
    for name in ("example.com/gpu", "cpu", names.RESOURCE_KVM):
        with pytest.raises(NotPermittedError, match=rf"^spec\.domain\.devices\.gpus\[0\]\.deviceName: '{name}' is not"):
            render(with_node_devices(gpus=[GPU | {"deviceName": name}]), config)


@pytest.mark.parametrize(
    ("gate", "flag"),
    [
        ("FirmwareAutoSelection", "--firmware-auto-selection"),
        ("CrossArchitectureVirtualization", "--any-architecture"),
        ("PCINUMAAwareTopology", "--devices-near-memory"),
    ],
)
def test_the_launcher_is_told_what_the_cluster_allows(gate: str, flag: str) -> None:
    for gates, told in (((), False), ((gate,), True)):
        config = replace(CONFIG, cluster=ClusterConfig(feature_gates=frozenset(gates)))
        assert (flag in (render(vmi(), config).spec.containers[0].args or [])) is told


@pytest.mark.parametrize(
    ("field", "flag"),
    [
        ("disable_serial_console_log", "--no-serial-log"),
        ("disable_free_page_reporting", "--no-free-page-reporting"),
    ],
)
def test_the_launcher_is_told_what_the_cluster_switches_off(field: str, flag: str) -> None:
    assert flag not in (render(vmi(), CONFIG).spec.containers[0].args or [])
    switched = replace(CONFIG, cluster=replace(ClusterConfig(), **{field: True}))
    assert flag in (render(vmi(), switched).spec.containers[0].args or [])


def test_overhead_grows_with_what_costs() -> None:
    small = overheads.overhead(vmi(), emulated=False)
    assert overheads.overhead(vmi(), emulated=True) > small
    cpus = vmi(spec={"domain": {"cpu": {"cores": 4}, "memory": {"guest": "128Mi"}, "devices": {}}})
    assert overheads.overhead(cpus, emulated=False) == small + 3 * overheads.PER_VCPU
    headless = vmi(spec={"domain": {"memory": {"guest": "128Mi"}, "devices": {"autoattachGraphicsDevice": False}}})
    assert overheads.overhead(headless, emulated=False) == small - overheads.GRAPHICS
    arm64 = vmi(spec={"architecture": "arm64"})
    assert overheads.overhead(arm64, emulated=False) == small + overheads.ARM_FIRMWARE
    for devices in ({"gpus": [GPU]}, {"hostDevices": [GPU]}):
        assert overheads.overhead(with_node_devices(**devices), emulated=False) == small + overheads.NODE_DEVICES


def test_unknown_volume_source_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API may have a source before this table has it."""
    monkeypatch.delitem(sources._SOURCES, "emptyDisk")
    strange = vmi(spec={"volumes": [{"name": "data", "emptyDisk": {"capacity": "1Gi"}}]})
    with pytest.raises(UnsupportedSpecError, match=r"spec.volumes\[0\] \(data\).*emptyDisk"):
        render(strange, CONFIG)


def test_a_claim_that_is_gone_is_named() -> None:
    with pytest.raises(UnsupportedSpecError, match=r"spec.volumes\[0\] \(data\).*'c'"):
        render(vmi(spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}), CONFIG)


def host_disk(path: str, type: str = "Disk") -> VirtualMachineInstance:
    return vmi(spec={"volumes": [{"name": "data", "hostDisk": {"path": path, "type": type}}]})


def test_a_directory_of_the_node_only_where_the_cluster_allows_it() -> None:
    with pytest.raises(UnsupportedSpecError, match="feature gate HostDisk"):
        render(host_disk("/srv/vms/one.img"), CONFIG)
    for type, kind in (("Disk", "Directory"), ("DiskOrCreate", "DirectoryOrCreate")):
        spec = render(host_disk("/srv/vms/one.img", type), STORAGE).spec
        (volume,) = [each for each in spec.volumes if each.host_path is not None]
        assert volume.host_path is not None
        assert (volume.host_path.path, volume.host_path.type) == ("/srv/vms", kind)


@pytest.mark.parametrize("path", ["one.img", "/one.img", "/srv/../etc/shadow", "/srv/vms/", "//srv/x", "/srv/./x", "/"])
def test_a_crooked_path_of_the_node_is_refused(path: str) -> None:
    with pytest.raises(UnsupportedSpecError, match="plain, absolute path"):
        render(host_disk(path), STORAGE)


def test_a_token_only_for_a_guest_that_is_to_have_one() -> None:
    spec = render(storage(), STORAGE).spec
    assert (spec.automount_service_account_token, spec.service_account_name) == (True, "robot")
    assert render(rich(), CONFIG).spec.automount_service_account_token is False


def test_the_first_user_of_a_claim_uses_it_and_nothing_else() -> None:
    pod = first_consumer(render(storage(), STORAGE))
    (container,) = pod.spec.containers
    assert (container.command, container.args) == (["python3", "-I", "-S", "-c", ""], [])
    assert pod.spec.volumes == render(storage(), STORAGE).spec.volumes
    assert pod.metadata.annotations[names.ANNOTATION_EPHEMERAL_PROVISIONING] == "true"


def test_probes_by_the_network_ask_the_pod() -> None:
    asked = vmi(
        spec={"readinessProbe": {"httpGet": {"port": 80, "path": "/up"}}, "livenessProbe": {"tcpSocket": {"port": 22}}}
    )
    [compute] = render(asked, CONFIG).spec.containers
    assert to_plain(compute)["readinessProbe"] == {"httpGet": {"port": 80, "path": "/up"}, "timeoutSeconds": 1}
    assert to_plain(compute)["livenessProbe"] == {
        "tcpSocket": {"port": 22},
        "initialDelaySeconds": 10,
        "timeoutSeconds": 1,
    }
    [first] = first_consumer(render(asked, CONFIG)).spec.containers
    assert (first.readiness_probe, first.liveness_probe) == (None, None)


def test_the_cluster_says_which_system_calls_a_machine_may_use() -> None:
    def profile(name: str) -> Any:
        pod = render(vmi(), replace(CONFIG, cluster=ClusterConfig(seccomp_profile=name)))
        return to_plain(pod.spec)["securityContext"]["seccompProfile"]

    assert profile("") == {"type": "RuntimeDefault"}
    own = {"type": "Localhost", "localhostProfile": "kubevirt/kubevirt.json"}
    assert profile("kubevirt/kubevirt.json") == own


def test_a_vsock_is_asked_of_the_node() -> None:
    wanted = vmi(spec={"domain": {"memory": {"guest": "64Mi"}, "devices": {"autoattachVSOCK": True}}})
    resources = render(wanted, CONFIG).spec.containers[0].resources
    assert resources is not None
    assert resources.limits[names.RESOURCE_VHOST_VSOCK] == "1"


def test_long_names_stay_valid() -> None:
    pod = render(vmi("n" * 200), CONFIG)
    assert len(pod.metadata.generate_name) + 5 <= 63
    assert all(len(value) <= 63 for value in pod.metadata.labels.values())
    assert len(pod.spec.hostname) <= 63


def test_a_limit_of_its_own_goes_before_the_namespaces() -> None:
    limiting = TemplateConfig("example.internal/launcher:v1", limit_cpu=True)
    for machine, limit in ((vmi(), "1"), (rich(), "4")):
        resources = render(machine, limiting).spec.containers[0].resources
        assert resources is not None
        assert resources.limits["cpu"] == limit


def test_a_machine_goes_rather_where_its_later_volumes_are() -> None:
    pod = render(vmi(), TemplateConfig("launcher:v1", near=("node2",)))
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    [term] = pod.spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution
    [wish] = term.preference.match_expressions
    assert (wish.key, wish.operator, wish.values) == (names.LABEL_NODE_HOSTNAME, "In", ["node2"])
    assert pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution is None


def test_a_machine_goes_only_where_its_later_volumes_can_be_reached() -> None:
    """The user's own wish holds beside it: each of its terms with each of a volume's."""
    body = vmi()
    own = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": [name]}]} for name in ("a", "b")]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}
    body.spec.affinity = from_plain({"nodeAffinity": required}, Affinity)
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=["node2"])
    zone = NodeSelectorRequirement(key="zone", operator="In", values=["z"])
    reach = (
        NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[field])]),
        NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=[zone])]),
    )
    pod = render(body, TemplateConfig("launcher:v1", reach=reach))
    node = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    assert node is not None
    assert node.required_during_scheduling_ignored_during_execution is not None
    terms = node.required_during_scheduling_ignored_during_execution.node_selector_terms
    assert [[(each.key, each.values) for each in term.match_expressions] for term in terms] == [
        [("rack", ["a"]), ("zone", ["z"])],
        [("rack", ["b"]), ("zone", ["z"])],
    ]
    assert all(term.match_fields == [field] for term in terms)


def test_pod_that_a_guest_moves_to_says_so_and_stays_away_from_the_other() -> None:
    plain = to_plain(render(vmi(), TemplateConfig("launcher:v1", move=Move("job", "job-uid"))))
    assert plain["metadata"]["labels"][names.LABEL_MIGRATION_JOB_UID] == "job-uid"
    assert plain["metadata"]["annotations"][names.ANNOTATION_MIGRATION_JOB_NAME] == "job"
    args = plain["spec"]["containers"][0]["args"]
    assert args[args.index("--role") + 1] == "target"
    terms = plain["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {names.LABEL_CREATED_BY: UID}}}
    ]


def test_pod_that_a_guest_moves_to_has_a_role_before_it_is_recorded() -> None:
    target = render(vmi(), TemplateConfig("launcher:v1", move=Move("job", "job-uid")))
    assert role_of(target, handed_over("Running")) is Role.TARGET
    assert role_of(render(vmi(), TemplateConfig("launcher:v1")), handed_over("Running")) is None


def test_only_the_disks_of_the_guest_may_grow() -> None:
    places = {v.name: v.empty_dir for v in render(vmi(), CONFIG).spec.volumes if v.empty_dir is not None}
    assert {name for name, place in places.items() if place.size_limit is None} == {names.VOLUME_EPHEMERAL_DISKS}


def test_disk_space_that_the_vmi_asks_for_is_for_its_disks() -> None:
    resources = {"requests": {"ephemeral-storage": "1Gi"}, "limits": {"ephemeral-storage": "2Gi"}}
    spec = {"domain": {"memory": {"guest": "1Gi"}, "devices": {}, "resources": resources}, "networks": []}
    found = render(vmi("big", spec=spec), CONFIG).spec.containers[0].resources
    assert found is not None
    assert parse_bytes(found.requests["ephemeral-storage"]) > 1 << 30
    assert parse_bytes(found.limits["ephemeral-storage"]) > 2 << 30
    plain = render(vmi(), CONFIG).spec.containers[0].resources
    assert plain is not None
    assert "ephemeral-storage" not in plain.limits, "nobody evicts a guest that fills its own disk"


def test_users_of_its_own_are_asked_for_only_where_they_are_wanted() -> None:
    assert render(vmi(), CONFIG).spec.host_users is None
    assert render(vmi(), replace(CONFIG, user_namespaces=True)).spec.host_users is False


def resources_of(given: VirtualMachineInstance, config: TemplateConfig = KVM) -> tuple[dict[str, Any], dict[str, Any]]:
    asked = render(given, config).spec.containers[0].resources
    assert asked is not None
    return asked.requests, asked.limits


@pytest.mark.parametrize(
    ("cpu", "domain", "annotations", "count"),
    [
        ({}, {}, (), "4"),
        ({"isolateEmulatorThread": True}, {}, (), "5"),
        ({"isolateEmulatorThread": True}, {}, (names.ANNOTATION_EVEN_PARITY,), "6"),
        ({"isolateEmulatorThread": True, "threads": 1, "cores": 3}, {}, (names.ANNOTATION_EVEN_PARITY,), "4"),
        ({}, {"ioThreadsPolicy": "supplementalPool", "ioThreads": {"supplementalPoolThreadCount": 3}}, (), "7"),
        ({}, {"ioThreadsPolicy": "shared", "ioThreads": {"supplementalPoolThreadCount": 3}}, (), "4"),
        ({}, {"resources": {"requests": {"cpu": "4", "memory": "512Mi"}, "overcommitGuestOverhead": True}}, (), "4"),
        ({}, {"resources": {"limits": {"cpu": "4", "memory": "2Gi"}}}, (), "4"),
        ({}, {"memory": PAGES}, (), "4"),
    ],
)
def test_a_pod_with_cpus_of_its_own_is_guaranteed(
    cpu: dict[str, Any], domain: dict[str, Any], annotations: tuple[str, ...], count: str
) -> None:
    """Whole CPUs, and memory that is booked in full: its limit would otherwise end the guest."""
    given = machine(cpu=OWN | cpu, **domain)
    given.metadata.annotations.update(dict.fromkeys(annotations, ""))
    config = replace(KVM, cluster=ClusterConfig(memory_overcommit=200), limit_cpu=True)
    requests, limits = resources_of(given, config)
    assert requests["cpu"] == limits["cpu"] == count
    assert requests["memory"] == limits["memory"]
    extra = overheads.overhead(given, emulated=False)
    limit = parse_bytes(given.spec.domain.resources.limits.get("memory", 0))
    assert parse_bytes(limits["memory"]) == extra + (0 if "memory" in domain else max(limit, 1 << 30))


@pytest.mark.parametrize(
    ("resources", "beside", "limit"),
    [
        ({}, 0, None),
        ({"requests": {"memory": "1280Mi"}, "limits": {"memory": "2Gi"}}, 256 << 20, 1 << 30),
        ({"requests": {"memory": "512Mi"}, "overcommitGuestOverhead": True}, 0, None),
    ],
)
def test_huge_pages_are_asked_for_beside_ordinary_memory(
    resources: dict[str, Any], beside: int, limit: int | None
) -> None:
    given = machine(memory=PAGES, resources=resources)
    requests, limits = resources_of(given)
    assert requests["hugepages-2Mi"] == limits["hugepages-2Mi"] == "1Gi"
    extra = overheads.overhead(given, emulated=False)
    assert parse_bytes(requests["memory"]) == extra + beside
    assert ("memory" in limits) == (limit is not None)
    assert limit is None or parse_bytes(limits["memory"]) == extra + limit


def test_pages_of_another_size_are_another_resource() -> None:
    requests, _ = resources_of(machine(memory={"guest": "2Gi", "hugepages": {"pageSize": "1Gi"}}))
    assert requests["hugepages-1Gi"] == "2Gi"


@pytest.mark.parametrize(
    ("spec", "mounted"),
    [
        ({"volumes": [{"name": "figures", "downwardMetrics": {}}]}, True),
        ({"domain": {"devices": {"downwardMetrics": {}}}}, False),
    ],
)
def test_figures_of_the_node_need_the_gate_and_lie_in_memory(spec: dict[str, Any], mounted: bool) -> None:
    asked = vmi(spec=spec)
    with pytest.raises(UnsupportedSpecError, match="feature gate DownwardMetrics"):
        render(asked, CONFIG)
    opened = replace(CONFIG, cluster=ClusterConfig(feature_gates=frozenset({"DownwardMetrics"})))
    found = [v.empty_dir for v in render(asked, opened).spec.volumes if v.name == names.VOLUME_METRICS]
    assert [(each.medium, each.size_limit) for each in found if each is not None] == [("Memory", "1Mi")] * mounted
    assert overheads.overhead(asked, emulated=False) == overheads.overhead(vmi(), emulated=False) + overheads.METRICS


@pytest.mark.parametrize(("added", "more"), [("100Mi", 100 << 20), (None, 0), ("-1Gi", 0)])
def test_who_knows_that_a_machine_needs_more_gets_it_booked(added: str | None, more: int) -> None:
    memory = {"guest": "128Mi", "reservedOverhead": {"addedOverhead": added}}
    asked = vmi(spec={"domain": {"devices": {}, "memory": memory}})
    plain = vmi(spec={"domain": {"devices": {}, "memory": {"guest": "128Mi"}}})
    assert overheads.overhead(asked, emulated=False) == overheads.overhead(plain, emulated=False) + more
