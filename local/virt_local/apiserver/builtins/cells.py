"""Values of table cells that are more than one field: a Pod's status, a Service's ports, an Event's age."""

from __future__ import annotations

from typing import Any

from virt_core.apis.names import ANNOTATION_DEFAULT_CLASS
from virt_local.apiserver.humanize import since

Object = dict[str, Any]
NONE = "<none>"

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def labels(values: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((values or {}).items())) or NONE


def node_status(node: Object) -> str:
    ready = next((c for c in _status(node).get("conditions") or () if c.get("type") == "Ready"), None)
    words = {"True": "Ready"}.get(ready.get("status", ""), "NotReady") if ready else "Unknown"
    return words + (",SchedulingDisabled" if _spec(node).get("unschedulable") else "")


def node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    known = node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in known if key.startswith(prefix))) or NONE


def node_address(node: Object, kind: str) -> str:
    addresses = _status(node).get("addresses") or ()
    return next((a["address"] for a in addresses if a.get("type") == kind), NONE)


def pod_ready(pod: Object) -> str:
    statuses = _status(pod).get("containerStatuses") or ()
    return f"{sum(1 for s in statuses if s.get('ready'))}/{len(_spec(pod).get('containers') or ())}"


def pod_status(pod: Object) -> str:
    """The most telling word: why a container waits or ended, else the Pod's own reason or phase."""
    status = _status(pod)
    word = status.get("reason") or status.get("phase") or "Unknown"
    init = _init_status(pod)
    if init:
        word = init
    else:
        for container in reversed(status.get("containerStatuses") or ()):
            word = _container_word(container) or word
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(word)


def _init_status(pod: Object) -> str:
    statuses = _status(pod).get("initContainerStatuses") or ()
    total = len(_spec(pod).get("initContainers") or ())
    for index, container in enumerate(statuses):
        ended = (container.get("state") or {}).get("terminated")
        if (ended and ended.get("exitCode") == 0) or container.get("started"):
            continue
        word = _container_word(container)
        return f"Init:{word}" if word and word != "PodInitializing" else f"Init:{index}/{total}"
    return ""


def _container_word(container: Object) -> str:
    state = container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated")
    if waiting.get("reason"):
        return str(waiting["reason"])
    if ended is None:
        return ""
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def pod_restarts(pod: Object) -> str:
    statuses = _status(pod).get("containerStatuses") or ()
    total = sum(s.get("restartCount", 0) for s in statuses)
    ends = [((s.get("lastState") or {}).get("terminated") or {}).get("finishedAt", "") for s in statuses]
    last = max(ends, default="")
    return f"{total} ({since(last)} ago)" if total and last else str(total)


def pod_ip(pod: Object) -> str:
    return str(_status(pod).get("podIP") or NONE)


def pod_gates(pod: Object) -> str:
    gates = [gate.get("conditionType") for gate in _spec(pod).get("readinessGates") or ()]
    if not gates:
        return NONE
    true = {c["type"] for c in _status(pod).get("conditions") or () if c.get("status") == "True"}
    return f"{sum(1 for gate in gates if gate in true)}/{len(gates)}"


def event_last_seen(event: Object) -> str:
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return since(last or event["metadata"].get("creationTimestamp"))


def event_first_seen(event: Object) -> str:
    first = event.get("firstTimestamp") or event.get("eventTime")
    return since(first or event["metadata"].get("creationTimestamp"))


def event_count(event: Object) -> int:
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)


def event_object(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def event_source(event: Object) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if component and host else str(component)


def service_external_ip(service: Object) -> str:
    spec = _spec(service)
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or NONE)
    ingress = (_status(service).get("loadBalancer") or {}).get("ingress") or ()
    found = [*(spec.get("externalIPs") or ()), *(i.get("ip") or i.get("hostname") for i in ingress)]
    return ",".join(found) or ("<pending>" if spec.get("type") == "LoadBalancer" else NONE)


def service_ports(service: Object) -> str:
    shown = []
    for port in _spec(service).get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def slice_ports(slice_: Object) -> str:
    return ",".join(str(port.get("port")) for port in slice_.get("ports") or ()) or "<unset>"


def slice_endpoints(slice_: Object) -> str:
    found = [address for endpoint in slice_.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return ",".join(found[:3]) + more or "<unset>"


def access_modes(volume: Object) -> str:
    """Of a claim only once it has a volume: before, it is a wish."""
    if volume.get("kind") == "PersistentVolumeClaim" and not _spec(volume).get("volumeName"):
        return ""
    modes = _status(volume).get("accessModes") or _spec(volume).get("accessModes") or ()
    return ",".join(_MODES.get(mode, mode) for mode in modes)


def terminating_or_phase(obj: Object) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(_status(obj).get("phase") or "")


def volume_claim(volume: Object) -> str:
    claim = _spec(volume).get("claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def storage_class_name(storage_class: Object) -> str:
    marks = storage_class["metadata"].get("annotations") or {}
    name = str(storage_class["metadata"]["name"])
    return f"{name} (default)" if marks.get(ANNOTATION_DEFAULT_CLASS) == "true" else name


def controller(obj: Object) -> str:
    owners = obj["metadata"].get("ownerReferences") or ()
    owner = next((o for o in owners if o.get("controller")), None)
    if owner is None:
        return NONE
    group = owner.get("apiVersion", "").rpartition("/")[0]
    return f"{owner.get('kind', '').lower()}{'.' + group if group else ''}/{owner.get('name')}"


def binding_role(binding: Object) -> str:
    role = binding.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def binding_subjects(binding: Object, kind: str) -> str:
    found = [s for s in binding.get("subjects") or () if s.get("kind") == kind]
    if kind == "ServiceAccount":
        return ", ".join(f"{s.get('namespace', '')}/{s.get('name', '')}" for s in found)
    return ", ".join(s.get("name", "") for s in found)


def pod_selector(policy: Object) -> str:
    return labels((_spec(policy).get("podSelector") or {}).get("matchLabels"))


def quota(obj: Object, *, limits: bool) -> str:
    """How much is used of how much, for each resource."""
    hard, used = _spec(obj).get("hard") or {}, _status(obj).get("used") or {}
    names = [name for name in sorted(hard) if name.startswith("limits.") is limits]
    return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)


def api_service(service: Object) -> str:
    target = _spec(service).get("service")
    return f"{target.get('namespace')}/{target.get('name')}" if target else "Local"


def api_available(service: Object) -> str:
    for condition in _status(service).get("conditions") or ():
        if condition.get("type") == "Available":
            why = f" ({condition.get('reason')})" if condition.get("status") != "True" else ""
            return f"{condition.get('status')}{why}"
    return "Unknown"


def _spec(obj: Object) -> Object:
    return obj.get("spec") or {}


def _status(obj: Object) -> Object:
    return obj.get("status") or {}
