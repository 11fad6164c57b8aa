"""Ports: a program, its Pod, the policies and Prometheus mean the same ones."""

from __future__ import annotations

import json
import re

import pytest
from framework.chart import COMPONENTS, Object, all_of, args, one

from virt_controller.certificates.roles import roles
from virt_core.apis import names
from virt_handler.moves.network import INTERFACE

MONITORED = "serviceMonitor: {enabled: true}"
OPEN = "networkPolicies: {metricsFrom: [{podSelector: {}}], automationFrom: [{podSelector: {}}]}"


def templates() -> dict[str, Object]:
    """Component → the template of its Pods."""
    found = [*all_of("Deployment"), *all_of("DaemonSet")]
    return {obj["metadata"]["name"]: obj["spec"]["template"] for obj in found}


def ports(component: str) -> dict[str, int]:
    declared = templates()[component]["spec"]["containers"][0]["ports"]
    return {port["name"]: port["containerPort"] for port in declared}


def matches(selector: Object, labels: Object) -> bool:
    """A label selector. Only the operator In is known here."""
    wanted = selector.get("matchLabels", {})
    choices = {each["key"]: each["values"] for each in selector.get("matchExpressions", []) if each["operator"] == "In"}
    assert len(choices) == len(selector.get("matchExpressions", []))
    return wanted.items() <= labels.items() and all(labels.get(key) in some for key, some in choices.items())


def chosen(selector: Object) -> list[str]:
    return [name for name, each in templates().items() if matches(selector, each["metadata"]["labels"])]


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_pod_names_what_its_program_listens_on(component: str) -> None:
    found = [re.fullmatch(r"--(?:\w+-)?listen=0\.0\.0\.0:(\d+)", argument) for argument in args(component)]
    assert sorted(int(each[1]) for each in found if each) == sorted(ports(component).values())


def test_virt_api_calls_virt_handler_where_it_listens() -> None:
    port = ports("virt-handler")["node"]
    assert f"--handler-port={port}" in args("virt-api")
    assert f"--advertise=$(POD_IP):{port}" in args("virt-handler")


@pytest.mark.parametrize("policy", all_of("NetworkPolicy", OPEN), ids=lambda policy: str(policy["metadata"]["name"]))
def test_a_policy_opens_only_ports_that_there_are(policy: Object) -> None:
    selected = chosen(policy["spec"]["podSelector"])
    assert selected
    there = {port for component in selected for port in ports(component).values()}
    opened = {port["port"] for rule in policy["spec"].get("ingress", []) for port in rule["ports"]}
    assert opened - {names.MOVE_PORTS[0]} <= there


def test_every_port_is_opened_to_somebody() -> None:
    opened = {
        (component, port["port"])
        for policy in all_of("NetworkPolicy", OPEN)
        for rule in policy["spec"].get("ingress", [])
        for port in rule["ports"]
        for component in chosen(policy["spec"]["podSelector"])
    }
    assert {(component, port) for component in COMPONENTS for port in ports(component).values()} <= opened


def test_virt_api_reaches_virt_handler_and_machines_that_move_do_and_nobody_else() -> None:
    assert one("NetworkPolicy", "virtpod-default-deny")["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    ingress = one("NetworkPolicy", "virtpod-virt-handler")["spec"]["ingress"]
    asks, moves = ([{"podSelector": {"matchLabels": {"kubevirt.io": f"virt-{who}"}}}] for who in ("api", "handler"))
    arrivals = {"port": names.MOVE_PORTS[0], "endPort": names.MOVE_PORTS[-1], "protocol": "TCP"}
    assert ingress == [
        {"ports": [{"port": 8186, "protocol": "TCP"}], "from": asks},
        {"ports": [arrivals], "from": moves},
    ]


def test_virt_handler_is_on_the_network_that_machines_move_over() -> None:
    values = "kubevirt: {configuration: {migrations: {network: moves}}}"
    [handler] = all_of("DaemonSet", values)
    [asked] = json.loads(handler["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_NETWORKS])
    assert asked == {"name": "moves", "namespace": "virtpod", "interface": INTERFACE}
    [plain] = all_of("DaemonSet")
    assert names.ANNOTATION_NETWORKS not in plain["spec"]["template"]["metadata"]["annotations"]


def scraped(monitor: Object) -> list[tuple[str, int]]:
    """The component and port of each target, as the Prometheus operator finds them."""
    services = all_of("Service", MONITORED)
    [service] = [s for s in services if matches(monitor["spec"]["selector"], s["metadata"]["labels"])]
    [endpoint] = monitor["spec"]["endpoints"]
    [target] = [port["targetPort"] for port in service["spec"]["ports"] if port["name"] == endpoint["port"]]
    found = []
    for component in chosen({"matchLabels": service["spec"]["selector"]}):
        port = ports(component).get(target, target)
        # A Pod without a port of that name is in the Service, but is no target.
        found += [(component, port)] if port in ports(component).values() else []
    return found


def test_prometheus_finds_every_program_once() -> None:
    targets = [target for monitor in all_of("ServiceMonitor", MONITORED) for target in scraped(monitor)]
    wanted = {"virt-api": "https", "virt-controller": "metrics", "virt-handler": "metrics"}
    assert sorted(targets) == sorted((component, ports(component)[name]) for component, name in wanted.items())


def test_prometheus_trusts_virt_api_by_a_name_that_it_has() -> None:
    [endpoint] = one("ServiceMonitor", "virtpod-virt-api", MONITORED)["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] in roles("virtpod")[names.CERTS_API_SERVING].names
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": names.CERTS_API_SERVING, "key": names.TLS_CA_FILE}}
