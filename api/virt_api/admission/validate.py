"""The validating webhooks of VMIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from virt_api.admission.causes import Cause, Refused, invalid, not_supported
from virt_api.admission.metadata import broken_metadata
from virt_api.admission.objects import annotations_of, document_of, labels_of, read_spec, user_of
from virt_api.admission.review import MAX_CAUSES, Accepted
from virt_api.admission.rules import CREATE_RULES, SPEC_RULES, broken_rules
from virt_api.admission.rules.base import Check
from virt_api.admission.volumechange import changed_volumes
from virt_core.apis import names
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.auth import UserInfo
from virt_core.apis.nodedevices import not_permitted
from virt_core.apis.tags import untold_tags
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.configvalues import ClusterConfig


class VMICreateValidator:
    def __init__(self, config: Callable[[], ClusterConfig], trusted_users: frozenset[str]) -> None:
        self._config, self._trusted = config, trusted_users

    def __call__(self, request: AdmissionRequest) -> Accepted:
        """Raises Refused with every cause."""
        document, config = document_of(request.object), self._config()
        check = Check(read_spec(document), config)
        causes = list(broken_rules(check, SPEC_RULES + CREATE_RULES))
        trusted = user_of(request) in self._trusted
        causes += broken_metadata("metadata", labels_of(document), annotations_of(document), config, trusted=trusted)
        if causes:
            raise Refused(causes)
        return Accepted(warnings=spec_warnings(check.spec, config, "spec"))


def spec_warnings(spec: VirtualMachineInstanceSpec, config: ClusterConfig, path: str) -> list[str]:
    """What is no reason to refuse a machine: devices of the node that the configuration does not permit, for it may do
    so later, and tags that the guest does not hear of."""
    devices = islice(not_permitted(spec, config.permitted_host_devices), MAX_CAUSES)
    waiting = [f"{path}.{field}: {why}; the machine waits until it does" for field, why in devices]
    tags = islice(untold_tags(spec), MAX_CAUSES)
    return waiting + [f"{path}.{field}: only a cloudInitConfigDrive volume tells the guest of it" for field in tags]


class VMIUpdateValidator:
    def __init__(self, config: Callable[[], ClusterConfig], trusted_users: frozenset[str], handler_user: str) -> None:
        self._config, self._trusted, self._handler = config, trusted_users, handler_user

    def __call__(self, request: AdmissionRequest) -> None:
        """Raises Refused with every cause."""
        new, old = document_of(request.object), document_of(request.old_object)
        if causes := list(self._causes(request.user_info, new, old)):
            raise Refused(causes)

    def _causes(self, user: UserInfo, new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
        if user.username == self._handler and self._config().has("NodeRestriction"):
            yield from _node_restriction(user, new, old)
        changed = new.get("spec") != old.get("spec")
        if user.username not in self._trusted:
            if changed:
                yield not_supported("spec", "the spec of a VMI cannot be changed; delete it and create it anew")
            if _restricted(new) != _restricted(old):
                yield not_supported("metadata.labels", "labels of kubevirt.io can only be changed by Virtpod")
            if _own_annotations(new) != _own_annotations(old):
                ours = ", ".join(names.RESTRICTED_ANNOTATIONS)
                yield not_supported("metadata.annotations", f"{ours} can only be changed by Virtpod")
        elif changed:
            yield from _frozen_limits(new, old)
            yield from changed_volumes(new, old, self._config())


def _restricted(document: dict[str, Any]) -> dict[str, str]:
    return {key: value for key, value in labels_of(document).items() if key in names.RESTRICTED_LABELS}


def _own_annotations(document: dict[str, Any]) -> dict[str, str]:
    given = document.get("metadata", {}).get("annotations") or {}
    return {key: given[key] for key in names.RESTRICTED_ANNOTATIONS if key in given}


def _node_restriction(user: UserInfo, new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """A node's agent speaks for the VMIs of its own node, and cannot give them away. Its token must name the node."""
    own = (user.extra.get(names.EXTRA_NODE_NAME) or [""])[0]
    if not own:
        yield invalid("status.nodeName", "the token of virt-handler does not say on which node it runs")
        return
    node, target = _node(old), _target_node(old)
    if own not in (node, target):
        yield invalid("status.nodeName", f"node {own} does not run this VMI")
    elif _node(new) not in (node, own):
        yield invalid("status.nodeName", "virt-handler may not hand a VMI to another node")
    if _target_node(new) != target:
        yield invalid("status.migrationState.targetNode", "virt-handler may not choose the target node")


def _node(document: dict[str, Any]) -> Any:
    return (document.get("status") or {}).get("nodeName")


def _target_node(document: dict[str, Any]) -> Any:
    return ((document.get("status") or {}).get("migrationState") or {}).get("targetNode")


def _frozen_limits(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    for path in (("cpu", "maxSockets"), ("memory", "maxGuest")):
        before, after = _in_domain(old, path), _in_domain(new, path)
        if before is not None and after is not None and before != after:
            yield invalid(f"spec.domain.{'.'.join(path)}", "cannot be changed while the machine runs")


def _in_domain(document: dict[str, Any], path: tuple[str, str]) -> Any:
    domain = (document.get("spec") or {}).get("domain") or {}
    return (domain.get(path[0]) or {}).get(path[1])
