"""Real Pods on networks beside the Pod network, by the CNI plugins; and definitions that reach for the node."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import msgspec
import pytest
from functional.local.node.support import Node, eventually, shell

from virt_core.apis import names
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podnetworks import NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec
from virt_local.node.networks.definition import link_name

pytestmark = pytest.mark.root
SUBNET = {"type": "host-local", "subnet": "10.198.3.0/24"}


def define(node: Node, name: str, *, namespace: str = "default", **config: Any) -> None:
    node.objects.networks[f"{namespace}/{name}"] = NetworkAttachmentDefinition(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=NetworkAttachmentDefinitionSpec(config=json.dumps({"cniVersion": "0.3.1", **config})),
    )


def run(node: Node, script: str, networks: Any, *, namespace: str = "default") -> str:
    uid = node.run({"containers": [shell(script)], "terminationGracePeriodSeconds": 0})
    ask(node, uid, networks, namespace)
    return uid


def ask(node: Node, uid: str, networks: Any, namespace: str = "default") -> None:
    """Changes the Pod's annotation, as virt-controller does."""
    pod = node.pods.get(uid)
    assert pod is not None
    text = networks if isinstance(networks, str) else json.dumps(networks)
    annotations = pod.metadata.annotations | {names.ANNOTATION_NETWORKS: text}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations, namespace=namespace)
    node.pods.put(msgspec.structs.replace(pod, metadata=metadata))


def told(node: Node, uid: str) -> list[dict[str, Any]]:
    pod = node.pods.get(uid)
    assert pod is not None
    found: list[dict[str, Any]] = json.loads(pod.metadata.annotations.get(names.ANNOTATION_NETWORK_STATUS, "[]"))
    return found


def links() -> set[str]:
    return {each["ifname"] for each in json.loads(subprocess.check_output(["ip", "-j", "link"]))}


def inside(node: Node, uid: str, *words: str) -> Any:
    netns = node.settings.root / "netns" / uid
    return json.loads(subprocess.check_output(["nsenter", f"--net={netns}", "ip", "-j", *words]))


def test_two_pods_reach_one_another_on_a_network_of_their_own(node: Node) -> None:
    define(node, "blue", type="bridge", bridge="br1", ipam=SUBNET)
    first = run(node, "sleep 600", "blue@blue0")
    node.wait_phase(first, "Running")
    eventually(lambda: len(told(node, first)) == 2)
    own, blue = told(node, first)
    assert (own["interface"], own["default"]) == ("eth0", True)
    assert (blue["name"], blue["interface"]) == ("default/blue", "blue0")
    assert blue["ips"] == ["10.198.3.2"]
    assert blue["mac"] == inside(node, first, "link", "show", "blue0")[0]["address"]
    second = run(node, f"ping -c 2 -W 2 -I net1 {blue['ips'][0]}", [{"name": "blue", "mac": "02:aa:00:00:00:07"}])
    node.wait_phase(second, "Succeeded", within_s=30)
    assert {link_name("default", "br1")} == {name for name in links() if name.startswith("nad-")}
    assert "br1" not in links()


def test_networks_come_and_go_while_the_pod_runs(node: Node) -> None:
    define(node, "blue", type="bridge", bridge="br1", ipam=SUBNET)
    define(node, "bare", type="bridge", bridge="br2", mtu=1300)
    uid = run(node, "sleep 600", "[]")
    node.wait_phase(uid, "Running")
    assert told(node, uid) == []
    ask(node, uid, "blue@blue0")
    eventually(lambda: len(told(node, uid)) == 2)
    ask(node, uid, [{"name": "bare", "interface": "bare0", "mac": "02:aa:00:00:00:08"}])
    eventually(lambda: [each["interface"] for each in told(node, uid)] == ["eth0", "bare0"])
    assert [each["ifname"] for each in inside(node, uid, "link")] == ["lo", "eth0", "bare0"]
    (bare,) = inside(node, uid, "addr", "show", "bare0")
    assert (bare["address"], bare["mtu"]) == ("02:aa:00:00:00:08", 1300)
    assert not [each for each in bare["addr_info"] if each["family"] == "inet"]
    ask(node, uid, "")
    eventually(lambda: told(node, uid) == [])
    assert [each["ifname"] for each in inside(node, uid, "link")] == ["lo", "eth0"]
    assert node.phase(uid) == "Running"


def test_a_network_outlives_the_agent_and_goes_with_the_pod(node: Node) -> None:
    define(node, "blue", type="bridge", bridge="br1", ipam=SUBNET)
    uid = run(node, "sleep 600", "blue@blue0")
    node.wait_phase(uid, "Running")
    leases = node.settings.root / "ipam" / "default.blue"
    assert (leases / "10.198.3.2").exists()
    node.stop()
    node.start()
    eventually(lambda: len(told(node, uid)) == 2)
    node.pods.request_delete(uid, 0)
    node.wait_gone(uid)
    assert not (leases / "10.198.3.2").exists()


def test_a_network_that_is_not_there_is_named_and_waited_for(node: Node) -> None:
    uid = run(node, "sleep 600", "")
    node.wait_phase(uid, "Running")
    ask(node, uid, "blue")
    eventually(lambda: any("no such NetworkAttachmentDefinition" in message for _, _, message in node.events.seen))
    define(node, "blue", type="bridge", bridge="br1")
    eventually(lambda: len(told(node, uid)) == 2, within_s=30)


def test_a_macvlan_joins_a_segment_that_leads_nowhere(node: Node) -> None:
    define(node, "mac", type="macvlan", master="eth0", mode="bridge", ipam=SUBNET)
    uid = run(node, "sleep 600", "mac@mac0")
    node.wait_phase(uid, "Running")
    eventually(lambda: len(told(node, uid)) == 2)
    below = next(each for each in json.loads(subprocess.check_output(["ip", "-j", "link"])) if "nad-" in each["ifname"])
    assert below["ifname"] == link_name("default", "eth0"), "not the node's own"


#: What a tenant might try, and a word of the refusal.
ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "the Pods' own bridge gets an address": ({"type": "bridge", "isGateway": True, "ipam": SUBNET}, "isGateway"),
    "the node translates addresses": ({"type": "bridge", "ipMasq": True, "ipam": SUBNET}, "ipMasq"),
    "a route on the node": ({"type": "ptp", "ipam": SUBNET}, "'ptp'"),
    "a device of the node": ({"type": "host-device", "device": "eth0"}, "'host-device'"),
    "a program of the node": ({"type": "../../../bin/sh"}, "'../../../bin/sh'"),
    "a file of the node to write": ({"type": "bridge", "ipam": SUBNET | {"dataDir": "/etc"}}, "ipam.dataDir"),
    "a file of the node to read": (
        {"type": "bridge", "ipam": SUBNET | {"resolvConf": "/etc/shadow"}},
        "ipam.resolvConf",
    ),
    "another daemon of the node": ({"type": "bridge", "ipam": {"type": "dhcp"}}, "'dhcp'"),
    "a second plugin": ({"plugins": [{"type": "bridge"}, {"type": "tuning", "sysctl": {}}]}, "exactly one entry"),
    "settings of the kernel": ({"type": "tuning", "sysctl": {"net.ipv4.ip_forward": "1"}}, "'tuning'"),
    "a whole card": ({"type": "macvlan", "master": "eth0", "mode": "passthru"}, "mode"),
    "no JSON": ({"type": ["bridge"]}, "is not one of"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_definition_gets_nothing_of_the_node(node: Node, name: str) -> None:
    config, word = ATTACKS[name]
    define(node, "evil", **config)
    before = links()
    uid = run(node, "sleep 600", "")
    node.wait_phase(uid, "Running")
    ask(node, uid, "evil@evil0")
    eventually(lambda: any(reason == "FailedNetworkAttachment" for _, reason, _ in node.events.seen))
    assert any(word in message for _, _, message in node.events.seen), node.events.seen
    assert {name for name in links() - before if not name.startswith("veth")} == set()
    assert [each["ifname"] for each in inside(node, uid, "link")] == ["lo", "eth0"]


def test_bridges_of_two_namespaces_are_two(node: Node) -> None:
    """And no Pod uses a definition of another namespace, except of the one that all share."""
    define(node, "blue", type="bridge", bridge=f"{node.instance}-cni0")
    define(node, "blue", namespace="tenant", type="bridge", bridge=f"{node.instance}-cni0")
    mine, theirs = run(node, "sleep 600", "blue@blue0"), run(node, "sleep 600", "blue@blue0", namespace="tenant")
    for uid in (mine, theirs):
        node.wait_phase(uid, "Running")
        eventually(lambda uid=uid: len(told(node, uid)) == 2)  # type: ignore[misc]
    assert len([name for name in links() if name.startswith("nad-")]) == 2
    ask(node, mine, "tenant/blue@blue1")
    eventually(lambda: any("of another namespace" in message for _, _, message in node.events.seen))
