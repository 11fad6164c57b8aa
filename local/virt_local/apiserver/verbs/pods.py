"""The subresources of Pods that change something: binding to a node, and eviction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from virt_local.apiserver import errors
from virt_local.apiserver.meta import now_text
from virt_local.apiserver.request import dry_run
from virt_local.apiserver.selectors import selects
from virt_local.apiserver.storage import Mismatch, Record
from virt_local.apiserver.verbs.body import read_object
from virt_local.apiserver.verbs.call import Answer, Call
from virt_local.apiserver.verbs.delete import delete_object

Object = dict[str, Any]

_BUDGETS = "poddisruptionbudgets.policy"
_ATTEMPTS = 5
_RETRY_AFTER_S = 10


def _created() -> Answer:
    return Answer(201, obj={"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


async def bind(call: Call) -> Answer:
    """The scheduler's decision. A Pod is bound once."""
    binding = read_object(call)
    node = (binding.get("target") or {}).get("name")
    if not node:
        raise errors.storage("target.name: Required value")
    await _admit(call, binding)
    if dry_run(call.query):
        return _created()
    for _ in range(_ATTEMPTS):
        record = call.record()
        try:
            await call.server.store.put("pods", _bound(call, record, binding, node), expect=record.revision)
        except Mismatch:
            continue
        call.server.count_write(call.kind, "update")
        return _created()
    raise call.conflict()


def _bound(call: Call, record: Record, binding: Object, node: str) -> Object:
    pod = record.object()
    wanted_uid = (binding.get("metadata") or {}).get("uid")
    if wanted_uid and wanted_uid != record.uid:
        raise call.conflict(f"Precondition failed: UID in precondition: {wanted_uid}, UID in object meta: {record.uid}")
    if pod["metadata"].get("deletionTimestamp"):
        raise _unbindable(call, "is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise _unbindable(call, f'is already assigned to node "{pod["spec"]["nodeName"]}"')
    if pod["spec"].get("schedulingGates"):
        raise _unbindable(call, "has non-empty .spec.schedulingGates")
    pod["spec"]["nodeName"] = node
    notes = (binding.get("metadata") or {}).get("annotations")
    if notes:
        pod["metadata"]["annotations"] = (pod["metadata"].get("annotations") or {}) | notes
    _set_scheduled(pod.setdefault("status", {}))
    return pod


def _unbindable(call: Call, why: str) -> errors.ApiError:
    return errors.conflict("pods/binding", "", call.name, f"pod {call.name} {why}")


def _set_scheduled(status: Object) -> None:
    conditions = [c for c in status.get("conditions") or [] if c.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now_text()}
    status["conditions"] = [*conditions, scheduled]


async def _admit(call: Call, obj: Object) -> None:
    options = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    request = call.admission("CREATE", obj, None, options, dry_run(call.query))
    kinds = {"binding": ("", "v1", "Binding"), "eviction": ("policy", "v1", "Eviction")}
    group, version, request.kind = kinds[call.subresource]
    request.kind_in = (group, version)
    await call.mutate(request)
    await call.validate(request)


async def evict(call: Call) -> Answer:
    """A delete that asks the Pod's disruption budget first."""
    eviction = read_object(call)
    _complete(call, eviction)
    options = eviction.get("deleteOptions") or {}
    if (eviction.get("metadata") or {}).get("name") not in (None, "", call.name):
        raise errors.bad_request("name in URL does not match name in Eviction object")
    await _admit(call, eviction)
    record = call.record()
    is_dry = dry_run(call.query, options)
    if not _is_free(record.object()):
        await _take_disruption(call, record, is_dry)
    # The eviction was admitted; the deletion that follows is ours.
    deletion = replace(call, target=replace(call.target, subresource="", verb="delete"), by_server=True)
    await delete_object(deletion, options | ({"dryRun": ["All"]} if is_dry else {}))
    return _created()


def _complete(call: Call, eviction: Object) -> None:
    eviction.setdefault("apiVersion", "policy/v1")
    eviction.setdefault("kind", "Eviction")
    metadata = eviction["metadata"] = dict(eviction.get("metadata") or {})
    metadata.setdefault("namespace", call.namespace)


def _is_free(pod: Object) -> bool:
    """A Pod that does not run (yet, or any more) disrupts nobody."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


async def _take_disruption(call: Call, pod: Record, is_dry: bool) -> None:
    for _ in range(_ATTEMPTS):
        budgets = [record for record in call.server.store.list(_BUDGETS, pod.namespace) if _covers(record, pod)]
        if not budgets:
            return
        if len(budgets) > 1:
            text = "this pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise errors.internal(text)
        budget = _decremented(call, budgets[0], pod.name)
        if is_dry:
            return
        try:
            await call.server.store.put(_BUDGETS, budget, expect=budgets[0].revision)
        except Mismatch:
            continue
        return
    raise call.conflict()


def _covers(budget: Record, pod: Record) -> bool:
    """A budget without a selector covers nothing, one with an empty selector everything."""
    selector = (budget.object().get("spec") or {}).get("selector")
    return selector is not None and selects(selector, pod.labels)


def _decremented(call: Call, record: Record, pod_name: str) -> Object:
    budget = record.object()
    status = budget.setdefault("status", {})
    current = status.get("observedGeneration", 0) >= budget["metadata"].get("generation", 0)
    allowed = status.get("disruptionsAllowed", 0)
    if not current:
        text = f"The disruption budget {record.name} is still being processed by the server."
        raise _too_many(text, _RETRY_AFTER_S)
    if allowed < 1:
        wanted, there = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        text = f"The disruption budget {record.name} needs {wanted} healthy pods and has {there} currently"
        raise _too_many(text, 0)
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = (status.get("disruptedPods") or {}) | {pod_name: now_text()}
    call.server.count_write(call.kind, "update")
    return budget


def _too_many(why: str, retry_after_s: int) -> errors.ApiError:
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return errors.too_many_requests(text, retry_after_s, [errors.Cause("", why, "DisruptionBudget")])
