"""What the chart's ValidatingAdmissionPolicies say of Pods and of virt-controller, in the same words.

virt-local evaluates no policies. These two keep a right to create Pods from being a right over machines, and a stolen
token of virt-controller from being one over nodes, so they hold here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virt_core.apis import names
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Object

CONTROLLER = names.service_account_user(names.SA_CONTROLLER)
#: What marks a Pod as one of a machine: labels with these values only (None: with any), and annotations.
LABELS: Mapping[str, frozenset[str] | None] = {
    names.LABEL_APP: frozenset({names.APP_LAUNCHER, names.APP_ATTACHMENT}),
    names.LABEL_CREATED_BY: None,
    names.LABEL_MIGRATION_JOB_UID: None,
}
ANNOTATIONS = (names.ANNOTATION_DOMAIN, names.ANNOTATION_EPHEMERAL_PROVISIONING)


def confine(request: AdmissionRequest) -> None:
    """Raises Forbidden."""
    if request.group or request.object is None:
        return
    what, by_controller = (request.resource, request.subresource), request.user.name == CONTROLLER
    # A change of the status may bring labels along.
    if what in (("pods", ""), ("pods", "status")) and not by_controller:
        _protect_machines(request, request.object, request.old_object or {})
    if what == ("nodes", "") and by_controller and request.old_object is not None:
        _protect_node(request, request.object, request.old_object)


def _protect_machines(request: AdmissionRequest, new: Object, old: Object) -> None:
    if not _owners(new) <= _owners(old):
        raise _refused(request, "only virt-controller may make a Pod that a kind of kubevirt.io controls")
    if marks := [key for key, value in _marks(new).items() if _marks(old).get(key) != value]:
        raise _refused(request, f"only virt-controller may mark a Pod as one of a machine, by {', '.join(marks)}")


def _owners(pod: Object) -> set[str]:
    references = (pod.get("metadata") or {}).get("ownerReferences") or ()
    ours = f"{names.GROUP}/"
    return {str(r.get("uid")) for r in references if r.get("controller") and str(r.get("apiVersion")).startswith(ours)}


def _marks(pod: Object) -> dict[str, Any]:
    metadata = pod.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    marked = {key: value for key, value in labels.items() if key in LABELS and value in (LABELS[key] or (value,))}
    return marked | {key: annotations[key] for key in ANNOTATIONS if key in annotations}


def _protect_node(request: AdmissionRequest, new: Object, old: Object) -> None:
    """All that virt-controller ever does to a node is to withdraw it."""
    if new.get("spec") != old.get("spec"):
        raise _refused(request, "virt-controller may not change the spec of a node, nor its taints")
    after, before = new["metadata"], old["metadata"]
    if any(after.get(key) != before.get(key) for key in ("annotations", "finalizers", "ownerReferences")):
        raise _refused(request, "virt-controller may not change annotations, finalizers and owners of a node")
    changed = dict(set((after.get("labels") or {}).items()) - set((before.get("labels") or {}).items()))
    gone = set(before.get("labels") or {}) - set(after.get("labels") or {})
    if gone or changed not in ({}, {names.LABEL_SCHEDULABLE: "false"}):
        why = "virt-controller may only set the label kubevirt.io/schedulable of a node, and only to false"
        raise _refused(request, why)


def _refused(request: AdmissionRequest, why: str) -> errors.ApiError:
    return errors.forbidden(request.resource, request.group, request.name, why)
