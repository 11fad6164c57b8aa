"""Default values of a Pod, as the API documents them."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver.meta import now_text

Object = dict[str, Any]

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def default_pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    # Less than nothing is as short as can be, not for ever.
    spec["terminationGracePeriodSeconds"] = _grace(spec.get("terminationGracePeriodSeconds", 30))
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or ():
            if isinstance(container, dict):
                _default_container(container, bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        if isinstance(volume, dict):
            _default_volume(volume)
    _default_conditions(pod.get("status") or {})


def _grace(seconds: Any) -> Any:
    return 1 if isinstance(seconds, int) and seconds < 0 else seconds


def _default_conditions(status: Object) -> None:
    for condition in status.get("conditions") or ():
        if isinstance(condition, dict):
            condition.setdefault("lastProbeTime", None)
            condition.setdefault("lastTransitionTime", None)


def _default_container(container: Object, host_network: bool) -> None:
    container.setdefault("imagePullPolicy", pull_policy(container.get("image", "")))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    if resources.get("limits"):
        # A limit without a request asks for as much as it may use.
        resources["requests"] = resources["limits"] | (resources.get("requests") or {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network:
            port.setdefault("hostPort", port.get("containerPort"))
    for variable in container.get("env") or ():
        field_ref = (variable.get("valueFrom") or {}).get("fieldRef")
        if field_ref:
            field_ref.setdefault("apiVersion", "v1")
    for name in _PROBES:
        if container.get(name):
            _default_probe(container[name])


def pull_policy(image: str) -> str:
    """A tag that moves is pulled each time, everything else once."""
    name = image.rpartition("/")[2]
    if "@" in image:
        return "IfNotPresent"
    return "Always" if ":" not in name or name.endswith(":latest") else "IfNotPresent"


def _default_probe(probe: Object) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if probe.get("httpGet"):
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")
    if probe.get("grpc"):
        probe["grpc"].setdefault("service", "")


def _default_volume(volume: Object) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault("defaultMode", 0o644)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    if isinstance(volume.get("image"), dict):
        volume["image"].setdefault("pullPolicy", pull_policy(volume["image"].get("reference", "")))
    _default_items(volume.get("downwardAPI"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        _default_items(source.get("downwardAPI"))
        token = source.get("serviceAccountToken")
        if token is not None:
            token.setdefault("expirationSeconds", 3600)


def _default_items(downward: Object | None) -> None:
    for item in (downward or {}).get("items") or ():
        if item.get("fieldRef"):
            item["fieldRef"].setdefault("apiVersion", "v1")


def new_pod_status(pod: Object) -> Object:
    """The status of every new Pod, whatever the client sent."""
    status: Object = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        gated |= {"message": "Scheduling is blocked due to non-empty scheduling gates"}
        status["conditions"] = [{"lastProbeTime": None, "lastTransitionTime": now_text(), **gated}]
    return status


def qos_class(spec: Object) -> str:
    """Guaranteed: limits equal requests for CPU and memory everywhere. BestEffort: neither is set anywhere."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    any_set, all_equal = False, True
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            any_set = any_set or name in requests or name in limits
            all_equal = all_equal and name in limits and str(requests.get(name, limits[name])) == str(limits[name])
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if all_equal else "Burstable"
