"""Rules and defaults that depend on the cluster's settings, and those that only a forgotten default would show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from framework.supported import ALL_GATES
from unit.api.reviews import CONFIG, CREATE, TODAY_HOOKS, create, hooks, refused, review, vm, vmi

INV, DUP = "FieldValueInvalid", "FieldValueDuplicate"
GATES = frozenset({"PortRangesSpec", "NetworkDevicesWithDRA", "HostDevices", "ContainerPathVolumes", "Root"})
OPEN = hooks(config=replace(CONFIG, feature_gates=ALL_GATES | GATES))
NIC = "spec.domain.devices.interfaces[0]"


def with_ranges(*ranges: tuple[str, int, int], **interface: Any) -> dict[str, Any]:
    obj = vmi()
    wanted = [{"protocol": protocol, "start": start, "end": end} for protocol, start, end in ranges]
    obj["spec"]["domain"]["devices"]["interfaces"] = [
        {"name": "default", "masquerade": {}, "portRanges": wanted, **interface}
    ]
    return obj


@pytest.mark.parametrize(
    ("obj", "causes"),
    [
        (with_ranges(("TCP", 1, 10), ("UDP", 5, 15), ("TCP", 11, 65535)), []),
        (with_ranges(("TCP", 1, 10), ("TCP", 10, 20)), [(f"{NIC}.portRanges[1]", INV)]),
        (with_ranges(("TCP", 10, 1)), [(f"{NIC}.portRanges[0]", INV)]),
        (with_ranges(("TCP", 0, 1)), [(f"{NIC}.portRanges[0]", INV)]),
        (with_ranges(("TCP", 1, 65536)), [(f"{NIC}.portRanges[0]", INV)]),
        (with_ranges(("ICMP", 1, 2)), [(f"{NIC}.portRanges[0].protocol", INV)]),
        (with_ranges(("TCP", 1, 2), ports=[{"port": 80}]), [(f"{NIC}.portRanges", INV)]),
        (with_ranges(("TCP", 1, 2), masquerade=None, bridge={}), [(f"{NIC}.portRanges", INV)]),
        (with_ranges(*(("TCP", n, n) for n in range(1, 12))), [(f"{NIC}.portRanges", INV)]),
    ],
)
def test_port_ranges(obj: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert create(obj, using=OPEN).causes == causes


def reserving(**claim: Any) -> dict[str, Any]:
    obj = vmi()
    obj["spec"]["domain"]["devices"]["disks"].append({"name": "s", "lun": {"bus": "scsi", "reservation": True}})
    obj["spec"]["volumes"].append({"name": "s", "persistentVolumeClaim": {"claimName": "quorum", **claim}})
    return obj


def test_reservations_need_the_clusters_leave_and_a_disk_that_is_there_from_the_start() -> None:
    allowed = hooks(config=replace(CONFIG, persistent_reservation=True))
    field = "spec.domain.devices.disks.luns.reservation"
    assert create(reserving(), using=OPEN).causes == [(field, INV)]
    assert create(reserving(), using=allowed).code == 201
    volume = len(reserving()["spec"]["volumes"]) - 1
    assert create(reserving(hotpluggable=True), using=allowed).causes == [(f"spec.volumes[{volume}]", INV)]


def by_claim(*extra: dict[str, Any], binding: str = "sriov") -> dict[str, Any]:
    obj = vmi(
        resourceClaims=[{"name": "c", "resourceClaimName": "r"}],
        networks=[{"name": "default", "resourceClaim": {"claimName": "c", "requestName": "q"}}, *extra],
    )
    obj["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", binding: {}}] + [
        {"name": network["name"], "sriov": {}} for network in extra
    ]
    return obj


def test_networks_by_claim() -> None:
    assert create(by_claim(), using=OPEN).code == 201
    assert create(by_claim(binding="bridge"), using=OPEN).causes == [(NIC, INV)]
    mixed = by_claim({"name": "second", "multus": {"networkName": "n"}})
    assert create(mixed, using=OPEN).causes == [("spec.networks", INV)]


def test_a_request_of_a_claim_is_used_once() -> None:
    same = {"name": "second", "resourceClaim": {"claimName": "c", "requestName": "q"}}
    assert create(by_claim(same), using=OPEN).causes == [("spec.networks", DUP)]
    obj = by_claim()
    obj["spec"]["domain"]["devices"]["hostDevices"] = [{"name": "h", "claimName": "c", "requestName": "q"}]
    assert create(obj, using=OPEN).causes == [("spec.networks[0].resourceClaim", DUP)]


@pytest.mark.parametrize(
    ("source", "fine"),
    [
        ({"path": "/data", "readOnly": True}, True),
        ({"path": "/run/secrets/cloud"}, True),
        ({"path": "/data", "readOnly": False}, False),
        ({"path": "/var/run/kubevirt/x"}, False),
        ({"path": "/run//./kubevirt"}, False),
        ({"path": "/data/../var/run/libvirt"}, False),
        ({"path": "data"}, False),
        ({"path": "/" + "d" * 4096}, False),
    ],
)
def test_container_paths(source: dict[str, Any], fine: bool) -> None:
    obj, causes = vmi(), [] if fine else [("domain.volumes[1]", INV)]
    obj["spec"]["volumes"].append({"name": "f", "containerPath": source})
    obj["spec"]["domain"]["devices"]["filesystems"] = [{"name": "f", "virtiofs": {}}]
    assert create(obj, using=OPEN).causes == causes
    assert ("domain.volumes[1]", INV) in create(obj).causes


def test_a_container_path_is_no_disk() -> None:
    obj = vmi()
    obj["spec"]["volumes"].append({"name": "f", "containerPath": {"path": "/data", "readOnly": True}})
    assert create(obj, using=OPEN).causes == [("domain.volumes[1]", INV)]


def test_a_volume_that_nothing_shows_is_a_mistake() -> None:
    """The defaults add a disk, so only who goes around them sees this."""
    obj = vmi(architecture="amd64")
    obj["spec"]["volumes"].append({"name": "lost", "emptyDisk": {"capacity": "1Gi"}})
    assert refused(review(CREATE, obj)).causes == [("domain.volumes[1].name", INV)]
    assert create(obj).code == 201


@pytest.mark.parametrize(("live_update", "causes"), [(True, []), (False, [("spec.domain.memory.guest", INV)])])
def test_a_limit_binds_the_guest_where_memory_cannot_grow(live_update: bool, causes: list[tuple[str, str]]) -> None:
    obj = vmi()
    obj["spec"]["domain"]["resources"] = {"limits": {"memory": "64Mi"}}
    assert create(obj, using=hooks(config=replace(CONFIG, live_update=live_update))).causes == causes


@pytest.mark.parametrize(
    ("bus", "causes"), [("scsi", []), ("usb", [("spec.domain.devices.disks[0].disk.bus", "FieldValueNotSupported")])]
)
def test_disks_of_arm64(bus: str, causes: list[tuple[str, str]]) -> None:
    obj = vmi(architecture="arm64")
    obj["spec"]["domain"]["devices"]["disks"][0]["disk"]["bus"] = bus
    assert create(obj).causes == causes


def admitted(domain: dict[str, Any], **config: Any) -> dict[str, Any]:
    obj = vmi()
    obj["spec"]["domain"].update(domain)
    verdict = create(obj, using=hooks(config=replace(CONFIG, **config)))
    assert verdict.code == 201, verdict.message
    return verdict.admitted


def test_the_cluster_decides_about_sizes() -> None:
    domain = admitted({"memory": {"guest": "1Gi"}}, max_cpu_sockets=9, max_guest="3Gi", cpu_request="250m")["spec"][
        "domain"
    ]
    assert domain["cpu"]["maxSockets"] == 9
    assert domain["memory"]["maxGuest"] == "3Gi"
    assert domain["resources"]["requests"]["cpu"] == "250m"


def test_a_ceiling_below_the_size_is_none() -> None:
    domain = admitted({"memory": {"guest": "4Gi"}, "cpu": {"sockets": 12}}, max_cpu_sockets=9, max_guest="3Gi")["spec"][
        "domain"
    ]
    assert domain["cpu"]["maxSockets"] == 12
    assert "maxGuest" not in domain["memory"]


def test_root_has_a_gate() -> None:
    assert create(vmi(), using=OPEN).admitted["status"].get("runtimeUser", 0) == 0
    assert create(vmi()).admitted["status"]["runtimeUser"] == 107


def test_tdx_guests_find_the_quote_service() -> None:
    raw = {"confidentialCompute": {"tdx": {"attestation": {"qgsSocketPath": "/run/qgs"}}}}
    config = replace(CONFIG, feature_gates=ALL_GATES | {"WorkloadEncryptionTDX"}, raw=raw)
    obj = vmi()
    obj["spec"]["domain"]["launchSecurity"] = {"tdx": {}}
    obj["spec"]["domain"]["firmware"] = {"bootloader": {"efi": {"secureBoot": False}}}
    verdict = create(obj, using=hooks(config=config))
    assert verdict.code == 201, verdict.message
    assert verdict.admitted["metadata"]["annotations"]["kubevirt.io/qgs-socket-path"] == "/run/qgs"


IGNITION = "kubevirt.io/ignitiondata"


@pytest.mark.parametrize(
    ("data", "causes"),
    [('{"ignition": {"version": "3.4.0"}}', []), ("variant: fcos", ["annotations"]), ("{}", ["annotations"])],
)
def test_the_data_of_ignition_is_checked_where_its_gate_is_open(data: str, causes: list[str]) -> None:
    opened = hooks(config=replace(CONFIG, feature_gates=ALL_GATES | {"ExperimentalIgnitionSupport"}))
    one, many = vmi(), vm()
    one["metadata"]["annotations"] = {IGNITION: data}
    many["spec"]["template"]["metadata"] = {"annotations": {IGNITION: data}}
    assert create(one, using=opened).causes == [(f"metadata.{field}", "FieldValueInvalid") for field in causes]
    assert create(many, using=opened).causes == [
        (f"spec.template.metadata.{field}", "FieldValueInvalid") for field in causes
    ]


HOOKS = "hooks.kubevirt.io/hookSidecars"


@pytest.mark.parametrize(
    ("text", "causes"),
    [('[{"image": "x"}]', []), ("[]", []), ("[{}]", ["annotations"]), ("image: x", ["annotations"])],
)
def test_sidecars_are_checked_where_their_gate_is_open(text: str, causes: list[str]) -> None:
    opened = hooks(config=replace(CONFIG, feature_gates=ALL_GATES | {"Sidecar"}))
    one, many = vmi(), vm()
    one["metadata"]["annotations"] = {HOOKS: text}
    many["spec"]["template"]["metadata"] = {"annotations": {HOOKS: text}}
    assert create(one, using=opened).causes == [(f"metadata.{field}", "FieldValueInvalid") for field in causes]
    assert create(many, using=opened).causes == [
        (f"spec.template.metadata.{field}", "FieldValueInvalid") for field in causes
    ]


def test_sidecars_need_their_gate() -> None:
    obj = vmi()
    obj["metadata"]["annotations"] = {HOOKS: '[{"image": "x"}]'}
    assert create(obj, using=TODAY_HOOKS).causes == [("metadata.annotations", "FieldValueInvalid")]


def test_ignition_needs_its_gate() -> None:
    obj = vmi()
    obj["metadata"]["annotations"] = {IGNITION: '{"ignition": {"version": "3.4.0"}}'}
    closed = create(obj, using=TODAY_HOOKS)
    assert closed.causes == [("metadata.annotations", "FieldValueInvalid")]
    assert "needs the feature gate ExperimentalIgnitionSupport" in closed.message


def bound(**nic: Any) -> dict[str, Any]:
    obj = vmi()
    obj["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", **nic}]
    return obj


def test_passt_is_behind_its_gate() -> None:
    closed = hooks(config=replace(CONFIG, feature_gates=ALL_GATES - {"PasstBinding"}))
    assert create(bound(passtBinding={}), using=OPEN).code == 201
    assert create(bound(passtBinding={}), using=closed).causes == [(NIC, INV)]


def test_a_plugin_is_known_by_the_clusters_configuration() -> None:
    plugins = {"flat": {"domainAttachmentType": "managedTap"}}
    knows = hooks(config=replace(CONFIG, feature_gates=ALL_GATES, network_bindings=plugins))
    assert create(bound(binding={"name": "flat"}), using=knows).code == 201
    assert create(bound(binding={"name": "flat"}, dhcpOptions={"bootFileName": "x"}), using=knows).causes == [
        (f"{NIC}.dhcpOptions", INV)
    ]
    assert create(bound(binding={"name": "flat"}), using=OPEN).causes == [(f"{NIC}.binding.name", INV)]
