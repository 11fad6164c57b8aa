"""The component table: which programs an instance runs, with which command line, in which network namespace."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from virt_core.apis import names
from virt_local.up.forwarding import has_ipv6
from virt_local.up.instance import Instance, Node
from virt_local.up.material import NAMESPACE, Material, handler_tls_dir, node_tls_dir
from virt_local.up.processes import Component

LAUNCHER_IMAGE = "virtpod.internal/host:latest"
HANDLER_PORT = 8186
HANDLER_HEALTH_PORT = 8187
NODE_PORT = 10250
API_SERVER = "apiserver"
_QUIET = {"PYTHONUNBUFFERED": "1", "MALLOC_ARENA_MAX": "2"}


def script(name: str) -> str:
    """A console script of the environment that we run in, whatever PATH says."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def apiserver(instance: Instance, material: Material) -> Component:
    ranges: list[str] = []
    flags = {
        "data-dir": instance.data_dir / "apiserver",
        "instance": instance.name,
        "tls-cert": material.api_cert,
        "tls-key": material.api_key,
        "client-ca": material.cluster_ca.path,
        "service-account-key": material.signing_key,
        "front-proxy-cert": material.front_proxy_cert,
        "front-proxy-key": material.front_proxy_key,
        "node-client-cert": material.node_client_cert,
        "node-client-key": material.node_client_key,
    }
    for each in (instance.service_range, *([instance.service_range_v6] if has_ipv6() else [])):
        ranges += ["--service-range", each]
    listen = ("--listen", f"127.0.0.1:{instance.port}", "--listen", f"{instance.bridge_address}:{instance.port}")
    return _component(API_SERVER, (script("virt-local"), "apiserver", *_flags(flags), *ranges, *listen))


def controllers(instance: Instance) -> Component:
    flags = {
        "kubeconfig": instance.kubeconfig_dir / "controllers.yaml",
        "ready-file": controllers_ready(instance),
        "volume-dir": volume_dir(instance),
        "data-dir": instance.data_dir,
    }
    return _component("controllers", (script("virt-local"), "controllers", *_flags(flags)))


def volume_dir(instance: Instance) -> Path:
    return instance.data_dir / "volumes"


def controllers_ready(instance: Instance) -> Path:
    return instance.run_dir / "controllers.ready"


def node(instance: Instance, each: Node, material: Material) -> Component:
    tls = node_tls_dir(instance, each)
    dns: list[str] = []
    flags = {
        **_node_place(instance, each),
        "kubeconfig": instance.kubeconfig_dir / f"node-{each.name}.yaml",
        "port": NODE_PORT,
        "tls-cert": tls / names.TLS_CERT_FILE,
        "tls-key": tls / names.TLS_KEY_FILE,
        "client-ca": material.cluster_ca.path,
        "node-info-dir": node_info_dir(instance),
    }
    for address in (instance.dns_address, *([instance.dns_address_v6] if has_ipv6() else [])):
        dns += ["--cluster-dns", address]
    return _component(node_component(each), (script("virt-local"), "node", *_flags(flags), *dns), each.netns_path)


def node_purge(instance: Instance, each: Node, *, in_netns: bool) -> list[str]:
    """The command that takes a node's Pods apart after its agent has ended."""
    command = [script("virt-local"), "node", "--purge", *_flags(_node_place(instance, each))]
    return ["nsenter", f"--net={each.netns_path}", "--", *command] if in_netns else command


def _node_place(instance: Instance, each: Node) -> dict[str, object]:
    return {
        "name": each.name,
        "instance": instance.name,
        "root": instance.node_dir(each.name),
        "image-dir": instance.image_dir,
        "data-dir": instance.data_dir,
        "address": each.address,
        "pod-cidr": each.pod_cidr,
        "pod-cidr-v6": each.pod_cidr_v6 if has_ipv6() else "",
    }


def node_component(each: Node) -> str:
    return f"node@{each.name}"


def virt_api(instance: Instance, material: Material) -> Component:
    flags = {
        "kubeconfig": instance.kubeconfig_dir / "virt-api.yaml",
        "listen": f"127.0.0.1:{instance.api_port}",
        "serving-tls-dir": instance.tls_dir / names.CERTS_API_SERVING,
        "tls-dir": instance.tls_dir / "virt-api",
        "namespace": NAMESPACE,
        "handler-port": HANDLER_PORT,
        "requestheader-client-ca": material.front_proxy_ca.path,
        "requestheader-allowed-name": "front-proxy-client",
        "automation-listen": instance.automation_address,
    }
    # What it makes for a while stays where nobody else looks, and is gone with the instance.
    return _component("virt-api", (script("virt-api"), *_flags(flags)), TMPDIR=str(instance.tls_dir / "virt-api"))


def virt_controller(instance: Instance, *, user_namespaces: bool) -> Component:
    flags = {
        "kubeconfig": instance.kubeconfig_dir / "virt-controller.yaml",
        "namespace": NAMESPACE,
        "launcher-image": LAUNCHER_IMAGE,
        "health-listen": f"127.0.0.1:{instance.controller_health_port}",
        "export-url": f"https://127.0.0.1:{instance.api_port}",
        "export-ca": instance.tls_dir / names.CERTS_API_SERVING / names.TLS_CA_FILE,
    }
    # One controller on one machine: nobody to elect against, and a restart need not wait for an old lease to run out.
    users = "--launcher-user-namespaces" if user_namespaces else "--no-launcher-user-namespaces"
    return _component("virt-controller", (script("virt-controller"), *_flags(flags), "--no-leader-elect", users))


def virt_handler(instance: Instance, each: Node) -> Component:
    root = instance.node_dir(each.name)
    flags = {
        "kubeconfig": instance.kubeconfig_dir / f"virt-handler-{each.name}.yaml",
        "node-name": each.name,
        "listen": f"{each.address}:{HANDLER_PORT}",
        "tls-dir": handler_tls_dir(instance, each),
        "kubelet-root": root,
        "node-info-dir": node_info_dir(instance),
        "state-dir": root / "virt-handler",
        "health-listen": f"127.0.0.1:{HANDLER_HEALTH_PORT}",
        "netsetup-command": script("virt-netsetup"),
    }
    return _component(handler_component(each), (script("virt-handler"), *_flags(flags)), each.netns_path)


def handler_component(each: Node) -> str:
    return f"virt-handler@{each.name}"


def node_info_dir(instance: Instance) -> Path:
    """libvirt's capability cache and what the probe found; the same for all nodes, for they share the machine."""
    return instance.data_dir / "node-info"


def _component(name: str, command: tuple[str, ...], netns: str = "", **environment: str) -> Component:
    return Component(name, command, netns, _QUIET | environment)


def _flags(flags: Mapping[str, object]) -> list[str]:
    return [part for name, value in flags.items() for part in (f"--{name}", str(value))]
