"""`virtctl expose`: the Service that it creates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from framework.fake_kube import FakeKube

from .conftest import Run

OBJECTS = "/apis/kubevirt.io/v1/namespaces/default"
SERVICES = "/api/v1/namespaces/default/services"


def machine(ports: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "networks": [{"name": "other", "multus": {}}, {"name": "default", "pod": {}}],
        "domain": {"devices": {"interfaces": [{"name": "other"}, {"name": "default", "ports": ports or []}]}},
    }


@pytest.fixture(autouse=True)
def objects(kube: FakeKube) -> None:
    ports = [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    kube.put(f"{OBJECTS}/virtualmachineinstances/one", {"spec": machine(ports)})
    kube.put(f"{OBJECTS}/virtualmachines/vm1", {"spec": {"template": {"spec": machine()}}})
    selector = {"matchLabels": {"app": "web"}}
    kube.put(
        f"{OBJECTS}/virtualmachineinstancereplicasets/many",
        {"spec": {"selector": selector, "template": {"spec": machine()}}},
    )


def test_a_vmi_with_the_ports_that_it_declares(kube: FakeKube, run: Run) -> None:
    result = run("expose", "vmi", "one", "--name=web")
    assert result.output == "Service web successfully created for vmi one\n"
    service = kube.objects[f"{SERVICES}/web"]
    assert service["spec"] == {
        "ports": [
            {"port": 80, "name": "port-1", "protocol": "TCP"},
            {"port": 53, "name": "port-2", "protocol": "UDP"},
        ],
        "selector": {"vmi.kubevirt.io/id": "one"},
        "type": "ClusterIP",
    }
    owner = service["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("VirtualMachineInstance", "one", True)
    assert owner["uid"] == kube.objects[f"{OBJECTS}/virtualmachineinstances/one"]["metadata"]["uid"]


def test_a_vm_with_all_flags(kube: FakeKube, run: Run) -> None:
    flags = ["--port=80", "--target-port=8080", "--protocol=udp", "--port-name=p", "--type=nodeport", "-o", "name"]
    more = ["--cluster-ip=None", "--external-ip=1.2.3.4", "--ip-family=ipv4,ipv6"]
    assert run("expose", "vm", "vm1", "--name=web", *flags, *more).output == "service/web\n"
    assert kube.objects[f"{SERVICES}/web"]["spec"] == {
        "ports": [{"port": 80, "name": "p", "protocol": "UDP", "targetPort": 8080}],
        "selector": {"vmi.kubevirt.io/id": "vm1"},
        "clusterIP": "None",
        "type": "NodePort",
        "externalIPs": ["1.2.3.4"],
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "PreferDualStack",
    }


def test_a_replica_set(kube: FakeKube, run: Run) -> None:
    result = run("expose", "vmirs", "many", "--name=web", "--port=80", "--target-port=http", "-o", "json")
    assert json.loads(result.output)["spec"]["selector"] == {"app": "web"}
    assert kube.objects[f"{SERVICES}/web"]["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": "http"}]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["vm", "vm1"], "Missing option '--name'"),
        (["vm", "vm1", "--name=x"], "declares no ports: give --port"),
        (["vm", "none", "--name=x"], 'virtualmachines.kubevirt.io "none" not found'),
        (["pod", "x", "--name=x"], "use vmi or vm or vmirs"),
        (["vm", "vm1", "--name=x", "--port=0"], "--port"),
        (["vm", "vm1", "--name=x", "--port=1", "--type=ExternalName"], "--type"),
        (["vm", "vm1", "--name=x", "--port=1", "--protocol=icmp"], "--protocol"),
    ],
)
def test_refusals(run: Run, args: list[str], message: str) -> None:
    result = run("expose", *args)
    assert result.exit_code == 1
    assert message in result.output


def test_a_replica_set_that_a_service_cannot_select(kube: FakeKube, run: Run) -> None:
    path = f"{OBJECTS}/virtualmachineinstancereplicasets/odd"
    kube.put(path, {"spec": {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{}]}}})
    assert "match expressions" in run("expose", "vmirs", "odd", "--name=x", "--port=1").output
    kube.put(path, {"spec": {"selector": {}}})
    assert "no labels" in run("expose", "vmirs", "odd", "--name=x", "--port=1").output
