"""objectgraph: what a VM or VMI depends on, as a tree of references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from virt_api.problems import Problem
from virt_api.subresources.call import Call, json_response
from virt_core.apis.names import GROUP
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec

GATE = "ObjectGraph"
_CDI = "cdi.kubevirt.io"
_TYPES = "instancetype.kubevirt.io"

Node = dict[str, Any]


async def of_vm(call: Call) -> web.Response:
    _enabled(call)
    vm = await call.vm()
    vmi = await call.vmi_of_vm()
    return json_response(vm_graph(vm, vmi))


async def of_vmi(call: Call) -> web.Response:
    _enabled(call)
    return json_response(vmi_graph(await call.vmi()))


def _enabled(call: Call) -> None:
    if not call.config.has(GATE):
        raise Problem(400, f"the object graph needs the feature gate {GATE}")


def vm_graph(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> Node:
    namespace = vm.metadata.namespace
    children = [*_matched(vm)]
    if vmi is not None:
        children.append(vmi_graph(vmi))
    elif vm.spec.template is not None:
        children += _of_spec(vm.spec.template.spec, namespace)
    return _node(GROUP, "VirtualMachine", vm.metadata.name, namespace, children)


def vmi_graph(vmi: VirtualMachineInstance) -> Node:
    namespace = vmi.metadata.namespace
    children = [*_of_spec(vmi.spec, namespace)]
    return _node(GROUP, "VirtualMachineInstance", vmi.metadata.name, namespace, children)


def _matched(vm: VirtualMachine) -> Iterator[Node]:
    namespace = vm.metadata.namespace
    for matcher, default in (
        (vm.spec.instancetype, "VirtualMachineClusterInstancetype"),
        (vm.spec.preference, "VirtualMachineClusterPreference"),
    ):
        if matcher is not None and matcher.name:
            kind = matcher.kind or default
            yield _node(_TYPES, kind, matcher.name, "" if "Cluster" in kind else namespace)


def _of_spec(spec: VirtualMachineInstanceSpec, namespace: str) -> Iterator[Node]:
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield _node("", "PersistentVolumeClaim", volume.persistent_volume_claim.claim_name, namespace)
        elif volume.data_volume is not None:
            claim = _node("", "PersistentVolumeClaim", volume.data_volume.name, namespace)
            yield _node(_CDI, "DataVolume", volume.data_volume.name, namespace, [claim])
        elif volume.secret is not None:
            yield _node("", "Secret", volume.secret.secret_name, namespace)
        elif volume.config_map is not None:
            yield _node("", "ConfigMap", volume.config_map.name, namespace)
        elif volume.service_account is not None:
            yield _node("", "ServiceAccount", volume.service_account.service_account_name, namespace)


def _node(group: str, kind: str, name: str, namespace: str, children: list[Node] | None = None) -> Node:
    reference = {"apiGroup": group, "kind": kind, "name": name} | ({"namespace": namespace} if namespace else {})
    return {"objectReference": reference} | ({"children": children} if children else {})
