"""Networks beside the Pod network: what the launcher Pod asks for, and what the VMI learns of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from virt_controller.launcher_pod import NotPermittedError, render
from virt_controller.launcher_pod.sections import Move, TemplateConfig
from virt_controller.vmi import networks
from virt_core.apis import names, podnetworks
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.bindings import PASST, TABLE
from virt_core.apis.interfaces import InterfacePasstBinding, PluginBinding
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig

#: The first eleven digits of the SHA-256 of "blue".
BLUE = "pod16477688c0e"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def vmi(
    *nics: dict[str, Any], status: list[dict[str, Any]] | None = None, **annotations: str
) -> VirtualMachineInstance:
    definitions = {nic["name"]: nic.pop("net", "blue-net") for nic in nics}
    plain = {
        "metadata": {"name": "one", "namespace": "ns", "uid": "u", "annotations": annotations},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}, *nics]}},
            "networks": [
                {"name": "default", "pod": {}},
                *({"name": name, "multus": {"networkName": net}} for name, net in definitions.items()),
            ],
        },
        "status": {"interfaces": status or []},
    }
    return from_plain(plain, VirtualMachineInstance)


def nic(name: str = "blue", **more: Any) -> dict[str, Any]:
    return {"name": name, "bridge": {}, **more}


def pod(**annotations: Any) -> Pod:
    said = {f"k8s.v1.cni.cncf.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    told = {key: value if isinstance(value, str) else json.dumps(value) for key, value in said.items()}
    return from_plain({"metadata": {"name": "p", "annotations": told}}, Pod)


def asked(machine: VirtualMachineInstance) -> Any:
    rendered = render(machine, TemplateConfig("image")).metadata.annotations
    return json.loads(rendered[names.ANNOTATION_NETWORKS])


def test_interfaces_are_named_after_the_network() -> None:
    assert podnetworks.interface_name("blue") == BLUE
    assert len(BLUE) < 16, "as long as the kernel takes"


def test_the_pod_asks_for_its_networks() -> None:
    machine = vmi(nic(macAddress="02-AA-00-00-00-01"), nic("red", net="other/red-net"), nic("gone", state="absent"))
    assert asked(machine) == [
        {"name": "blue-net", "namespace": "ns", "interface": BLUE, "mac": "02:aa:00:00:00:01"},
        {"name": "red-net", "namespace": "other", "interface": podnetworks.interface_name("red")},
    ]


def test_a_network_in_place_of_the_pods_own() -> None:
    machine = vmi(nic())
    machine.spec.networks[1].multus.default = True  # type: ignore[union-attr]
    annotations = render(machine, TemplateConfig("image")).metadata.annotations
    assert annotations[names.ANNOTATION_DEFAULT_NETWORK] == "ns/blue-net"
    assert names.ANNOTATION_NETWORKS not in annotations


def test_a_machine_without_other_networks_asks_for_nothing() -> None:
    assert not {names.ANNOTATION_NETWORKS, names.ANNOTATION_DEFAULT_NETWORK} & set(
        render(vmi(), TemplateConfig("image")).metadata.annotations
    )


def test_a_status_from_the_vmi_does_not_reach_the_pod() -> None:
    forged = vmi(nic(), **{names.ANNOTATION_NETWORK_STATUS: json.dumps([{"name": "x", "interface": BLUE}])})
    assert names.ANNOTATION_NETWORK_STATUS not in render(forged, TemplateConfig("image")).metadata.annotations


def test_what_the_pod_has_is_told_by_its_own_name_only() -> None:
    told = pod(network_status=[{"name": "ns/blue-net", "interface": BLUE}, {"name": "ns/red-net", "interface": "eth0"}])
    found = networks.follow(vmi(nic(), nic("red"), status=[{"name": "default", "infoSource": "domain"}]), told)
    assert [to_plain(entry) for entry in found] == [
        {"name": "default", "infoSource": "domain"},
        {"name": "blue", "podInterfaceName": BLUE, "infoSource": "multus-status"},
    ]


@pytest.mark.parametrize("said", ["", "[", "{}", '[{"interface": 7}]', "[" * 100_000])
def test_what_cannot_be_read_says_nothing(said: str) -> None:
    before = [{"name": "blue", "infoSource": "domain, multus-status", "podInterfaceName": BLUE}]
    (entry,) = networks.follow(vmi(nic(), status=before), pod(network_status=said))
    assert entry.info_source == "domain"


def test_a_nic_that_nobody_has_any_more_is_forgotten() -> None:
    before = [{"name": "blue", "infoSource": "multus-status", "podInterfaceName": BLUE}]
    assert networks.follow(vmi(nic(state="absent"), status=before), pod(network_status=[])) == []


def test_the_pod_keeps_a_network_until_the_machine_has_let_go() -> None:
    going = vmi(nic(state="absent"), status=[{"name": "blue", "infoSource": "domain, multus-status"}])
    has = pod(networks=podnetworks.text(podnetworks.requested(vmi(nic()), started=False)))
    assert networks.operations(going, has) == []
    gone = vmi(nic(state="absent"), status=[{"name": "blue", "infoSource": "multus-status"}])
    (drop,) = networks.operations(gone, has)
    assert (drop["op"], drop["path"]) == ("remove", "/metadata/annotations/k8s.v1.cni.cncf.io~1networks")


def test_a_nic_that_comes_is_asked_for() -> None:
    (change,) = networks.operations(vmi(nic()), pod())
    assert json.loads(str(change["value"]))[0]["interface"] == BLUE
    again = replace(pod(), metadata=replace(pod().metadata, annotations={names.ANNOTATION_NETWORKS: change["value"]}))
    assert networks.operations(vmi(nic()), again) == []


def test_what_others_ask_for_in_the_annotation_stays_theirs() -> None:
    assert networks.operations(vmi(), pod(networks="istio-cni")) == []
    assert networks.operations(vmi(), pod(networks=[{"name": "istio", "interface": "mesh0"}])) == []


def test_the_definitions_that_must_exist() -> None:
    assert networks.definitions(vmi(nic(), nic("red", net="other/red"), nic("gone", state="absent"))) == [
        "ns/blue-net",
        "other/red",
    ]


def fast(name: str = "blue", **more: Any) -> dict[str, Any]:
    return {"name": name, "sriov": {}, **more}


def told_of(*devices: tuple[str, str]) -> dict[str, Any]:
    entries = [
        {"interface": podnetworks.interface_name(name), "device-info": {"type": "pci", "pci": {"pci-address": address}}}
        for name, address in devices
    ]
    return {"network_status": entries}


def test_a_device_of_the_node_is_asked_for_and_told_of() -> None:
    config = TemplateConfig("image", network_resources={"blue": "example.com/vf", "red": "example.com/vf"})
    machine = vmi(fast(macAddress="02:00:00:00:00:09"), fast("red"))
    rendered = render(machine, config)
    compute = rendered.spec.containers[0]
    assert compute.resources.requests["example.com/vf"] == compute.resources.limits["example.com/vf"] == "2"
    given = {variable.name: variable.value for variable in compute.env}
    assert given["KUBEVIRT_RESOURCE_NAME_blue"] == given["KUBEVIRT_RESOURCE_NAME_red"] == "example.com/vf"
    assert asked(machine)[0]["mac"] == "02:00:00:00:00:09"
    [volume] = [each for each in rendered.spec.volumes if each.downward_api is not None]
    assert to_plain(volume.downward_api)["items"] == [
        {"path": "network-info", "fieldRef": {"fieldPath": "metadata.annotations['kubevirt.io/network-info']"}}
    ]
    assert [mount.mount_path for mount in compute.volume_mounts if mount.name == volume.name] == ["/etc/podinfo"]
    plain = render(vmi(nic()), TemplateConfig("image"))
    assert not any(each.downward_api for each in plain.spec.volumes)
    booked = [int(each.metadata.annotations[names.ANNOTATION_MEMORY_OVERHEAD]) for each in (rendered, plain)]
    assert booked[0] - booked[1] == 1 << 30, "what VFIO maps"


def test_nobody_names_devices_beforehand() -> None:
    """A VMI's annotations become its Pod's, but not this one: it says which device of the node the guest takes."""
    machine = vmi(fast(), **{names.ANNOTATION_NETWORK_INFO: '{"interfaces": []}'})
    assert names.ANNOTATION_NETWORK_INFO not in render(machine, TemplateConfig("image")).metadata.annotations


def test_what_the_plugin_told_goes_to_the_launcher_once() -> None:
    machine = vmi(fast(), fast("red"), nic("green"))
    there = pod(**told_of(("blue", "0000:65:00.2"), ("green", "0000:65:00.9"), ("other", "0000:65:00.8")))
    [operation] = networks.told_devices(machine, there)
    assert operation["path"] == "/metadata/annotations/kubevirt.io~1network-info"
    [entry] = json.loads(str(operation["value"]))["interfaces"]
    assert (entry["network"], entry["deviceInfo"]["pci"]) == ("blue", {"pci-address": "0000:65:00.2"})
    there.metadata.annotations[names.ANNOTATION_NETWORK_INFO] = str(operation["value"])
    assert networks.told_devices(machine, there) == []
    assert networks.told_devices(machine, pod(network_status="[{")) == []


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("intel.com/sriov_net-a", "intel.com/sriov_net-a"),
        ("", ""),
        ("memory", ""),
        ("hugepages-2Mi", ""),
        ("devices.kubevirt.io/kvm", ""),
        ("kubernetes.io/batch-cpu", ""),
        ("a/b/c", ""),
        ("x" * 300 + "/y", ""),
    ],
)
def test_only_other_peoples_resources_come_by_a_network(said: str, meant: str) -> None:
    annotations = {"k8s.v1.cni.cncf.io/resourceName": said} if said else {}
    definition = from_plain({"metadata": {"annotations": annotations}}, podnetworks.NetworkAttachmentDefinition)
    assert networks.resource_of(definition) == meant
    assert networks.resource_of(None) == ""


def test_a_mesh_is_told_of_the_guests_bridge() -> None:
    meshed = render(vmi(**{names.ANNOTATION_MESH: "true"}), TemplateConfig("image")).metadata
    assert meshed.labels["sidecar.istio.io/inject"] == "true"
    assert meshed.annotations["istio.io/reroute-virtual-interfaces"] == "k6t-eth0"
    assert meshed.annotations["traffic.sidecar.istio.io/kubevirtInterfaces"] == "k6t-eth0"
    without = render(vmi(**{names.ANNOTATION_MESH: "false"}), TemplateConfig("image")).metadata
    assert without.labels["sidecar.istio.io/inject"] == "false"
    assert "istio.io/reroute-virtual-interfaces" not in without.annotations


def test_another_network_needs_another_pod() -> None:
    """The Pod keeps the network that the machine uses, and the VMI says that it has to move."""
    there = pod(networks=podnetworks.text([podnetworks.Selection("blue-net", "ns", BLUE)]))
    known = [{"name": "blue", "infoSource": "domain, multus-status"}]
    changed = vmi(nic(net="red-net"), status=known)
    assert networks.operations(changed, there) == []
    told = networks.with_migration_required(changed, there, NOW)
    assert networks.is_elsewhere(told)
    [condition] = told.status.conditions
    assert (condition.type, condition.status, condition.message) == (
        "MigrationRequired",
        "True",
        "another network for blue needs another Pod",
    )
    target = render(changed, TemplateConfig("image", move=Move("job", "uid")))
    asks = json.loads(target.metadata.annotations[names.ANNOTATION_NETWORKS])
    assert [each["name"] for each in asks] == ["red-net"]
    settled = networks.with_migration_required(told, target, NOW)
    assert not networks.is_elsewhere(settled)
    assert settled.status.conditions == []


def test_a_network_that_comes_beside_a_changed_one_is_asked_for() -> None:
    there = pod(networks=podnetworks.text([podnetworks.Selection("blue-net", "ns", BLUE)]))
    known = [{"name": "blue", "infoSource": "domain, multus-status"}]
    [operation] = networks.operations(vmi(nic(net="red-net"), nic("new"), status=known), there)
    asks = json.loads(str(operation["value"]))
    assert [each["name"] for each in asks] == ["blue-net", "blue-net"]
    assert len({each["interface"] for each in asks}) == 2


# -- plugins of the cluster's configuration ------------------------------------------------------------------------

PLUGINS = {
    "flat": {"domainAttachmentType": "managedTap", "networkAttachmentDefinition": "kube-system/flat-cni"},
    "theirs": {
        "sidecarImage": "registry/theirs:v1",
        "computeResourceOverhead": {"requests": {"memory": "10Mi"}},
    },
}


def by_plugin(*plugins: str) -> VirtualMachineInstance:
    machine = vmi(*(nic(f"n{number}") for number in range(len(plugins))))
    for number, plugin in enumerate(plugins):
        card = machine.spec.domain.devices.interfaces[number + 1]
        card.bridge, card.binding = None, PluginBinding(name=plugin)
    return machine


def config(**plugins: Any) -> TemplateConfig:
    return TemplateConfig("image", cluster=ClusterConfig(network_bindings=plugins or PLUGINS))


def test_a_plugins_cni_plugin_is_told_which_network_it_is_for() -> None:
    made = render(by_plugin("flat", "theirs"), config())
    said = json.loads(made.metadata.annotations[names.ANNOTATION_NETWORKS])
    assert [each.get("interface") for each in said[:2]] == [podnetworks.interface_name(name) for name in ("n0", "n1")]
    assert said[2:] == [{"name": "flat-cni", "namespace": "kube-system", "cni-args": {"logicNetworkName": "n0"}}]


def test_what_a_plugin_asked_for_stays_in_the_annotation_of_the_running_pod() -> None:
    machine = by_plugin("flat")
    asked = podnetworks.text([*podnetworks.requested(machine, started=True), podnetworks.of_plugin("flat", "n0", "ns")])
    assert networks.operations(machine, pod(networks=asked)) == []
    none_left = podnetworks.text([podnetworks.of_plugin("flat", "default", "ns")])
    assert networks.operations(vmi(), pod(networks=none_left)) == []


def test_a_plugins_sidecar_is_asked_once_and_its_memory_booked_once() -> None:
    made = render(by_plugin("theirs", "theirs", "flat"), config())
    assert [each.image for each in made.spec.containers[1:]] == ["registry/theirs:v1"]
    args = made.spec.containers[0].args
    assert [args[args.index(flag) + 1] for flag in ("--hook-sidecars", "--plugin-sidecars")] == ["1", "1"]
    booked = int(made.metadata.annotations[names.ANNOTATION_MEMORY_OVERHEAD])
    without = render(by_plugin("flat", "flat", "flat"), config())
    assert booked - int(without.metadata.annotations[names.ANNOTATION_MEMORY_OVERHEAD]) == 10 << 20


def test_a_plugin_that_left_the_configuration_makes_no_pod() -> None:
    with pytest.raises(NotPermittedError, match=r"interfaces\[1\]\.binding\.name: .* no network binding plugin 'flat'"):
        render(by_plugin("flat"), TemplateConfig("image"))


def test_passt_books_memory_and_no_vhost() -> None:
    machine = vmi()
    card = machine.spec.domain.devices.interfaces[0]
    usual = render(machine, TemplateConfig("image", kvm=True, vhost_net=True))
    card.masquerade, card.passt_binding = None, InterfacePasstBinding()
    made = render(machine, TemplateConfig("image", kvm=True, vhost_net=True))
    key = names.ANNOTATION_MEMORY_OVERHEAD
    assert int(made.metadata.annotations[key]) - int(usual.metadata.annotations[key]) == TABLE[PASST].memory
    resources = [each.spec.containers[0].resources for each in (usual, made)]
    assert [names.RESOURCE_VHOST_NET in each.limits for each in resources if each is not None] == [True, False]


def test_arguments_of_others_are_read_whatever_they_are() -> None:
    said = '[{"name": "a", "cni-args": {"ips": ["10.0.0.1/24"], "deep": {"er": 1}}}]'
    (found,) = podnetworks.selections(said)
    assert podnetworks.LOGIC_NETWORK not in found.cni_args
    assert networks.operations(vmi(), pod(networks=said)) == []
