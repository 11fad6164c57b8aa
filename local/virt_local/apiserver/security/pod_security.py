"""Pod Security: the levels `baseline` and `restricted` as a table of checks, enforced by a label on the namespace.

Each check answers with what is wrong, in one phrase for the person who wrote the Pod, or with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Object

PREFIX = "pod-security.kubernetes.io/"
_BASELINE_CAPABILITIES = frozenset(
    (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
)
_RESTRICTED_VOLUMES = frozenset(
    (
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
        *("persistentVolumeClaim", "projected", "secret"),
    )
)
_SECCOMP = frozenset(("RuntimeDefault", "Localhost"))
_LISTS = ("containers", "initContainers", "ephemeralContainers")

Check = Callable[[Object], str]


def check_pod(level: str, spec: Object) -> list[str]:
    """Everything in a Pod spec that the level forbids."""
    return [problem for check in _LEVELS.get(level, ()) if (problem := check(spec))]


def enforce(labels: dict[str, str], request: AdmissionRequest) -> None:
    """Refuses by the `enforce` label and warns by the `warn` label of the Pod's namespace."""
    spec = (request.object or {}).get("spec") or {}
    for mode in ("warn", "enforce"):
        level = labels.get(f"{PREFIX}{mode}", "privileged")
        problems = check_pod(level, spec)
        if not problems:
            continue
        title = f'PodSecurity "{level}:{labels.get(f"{PREFIX}{mode}-version", "latest")}": {", ".join(problems)}'
        if mode == "enforce":
            raise errors.forbidden("pods", "", request.name, f"violates {title}")
        request.warnings.append(f"would violate {title}")


def _containers(spec: Object) -> Iterator[Object]:
    for key in _LISTS:
        yield from spec.get(key) or ()


def _context(container: Object) -> Object:
    return container.get("securityContext") or {}


def _named(containers: Iterable[Object], what: str) -> str:
    names = [f'"{container.get("name", "")}"' for container in containers]
    if not names:
        return ""
    return f"{'container' if len(names) == 1 else 'containers'} {', '.join(names)} {what}"


def _phrase(title: str, *details: str) -> str:
    told = [detail for detail in details if detail]
    return f"{title} ({'; '.join(told)})" if told else ""


# Baseline.


def _host_namespaces(spec: Object) -> str:
    used = [f"{key}=true" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    return _phrase("host namespaces", ", ".join(used))


def _privileged(spec: Object) -> str:
    bad = [each for each in _containers(spec) if _context(each).get("privileged")]
    return _phrase("privileged", _named(bad, "must not set securityContext.privileged=true"))


def _baseline_capabilities(spec: Object) -> str:
    bad = [each for each in _containers(spec) if _added(each) - _BASELINE_CAPABILITIES]
    extra = sorted({name for each in bad for name in _added(each) - _BASELINE_CAPABILITIES})
    listed = ", ".join(f'"{name}"' for name in extra)
    return _phrase(
        "non-default capabilities", _named(bad, f"must not include {listed} in securityContext.capabilities.add")
    )


def _host_path(spec: Object) -> str:
    bad = [volume for volume in spec.get("volumes") or () if volume.get("hostPath")]
    names = ", ".join(f'"{volume["name"]}"' for volume in bad)
    return _phrase("hostPath volumes", f"{'volume' if len(bad) == 1 else 'volumes'} {names}" if bad else "")


def _host_ports(spec: Object) -> str:
    bad = [each for each in _containers(spec) if any(port.get("hostPort") for port in each.get("ports") or ())]
    return _phrase("hostPort", _named(bad, "uses a hostPort"))


def _unconfined(spec: Object) -> str:
    pod = _seccomp(spec.get("securityContext") or {})
    bad = [each for each in _containers(spec) if _seccomp(_context(each)) == "Unconfined"]
    at_pod = "pod must not set securityContext.seccompProfile.type to Unconfined" if pod == "Unconfined" else ""
    return _phrase("seccompProfile", at_pod, _named(bad, "must not set seccompProfile.type to Unconfined"))


def _proc_mount(spec: Object) -> str:
    bad = [each for each in _containers(spec) if _context(each).get("procMount", "Default") != "Default"]
    return _phrase("procMount", _named(bad, 'must not set securityContext.procMount to "Unmasked"'))


# Restricted.


def _escalation(spec: Object) -> str:
    bad = [each for each in _containers(spec) if _context(each).get("allowPrivilegeEscalation") is not False]
    return _phrase(
        "allowPrivilegeEscalation != false", _named(bad, "must set securityContext.allowPrivilegeEscalation=false")
    )


def _capabilities(spec: Object) -> str:
    undropped = [each for each in _containers(spec) if "ALL" not in _dropped(each)]
    added = [each for each in _containers(spec) if _added(each) - {"NET_BIND_SERVICE"}]
    extra = ", ".join(
        f'"{name}"' for name in sorted({n for each in added for n in _added(each) - {"NET_BIND_SERVICE"}})
    )
    return _phrase(
        "unrestricted capabilities",
        _named(undropped, 'must set securityContext.capabilities.drop=["ALL"]'),
        _named(added, f"must not include {extra} in securityContext.capabilities.add"),
    )


def _volume_types(spec: Object) -> str:
    bad: dict[str, str] = {}
    for volume in spec.get("volumes") or ():
        kind = next((key for key in volume if key != "name"), "emptyDir")
        if kind not in _RESTRICTED_VOLUMES:
            bad[volume["name"]] = kind
    names, kinds = (", ".join(f'"{each}"' for each in part) for part in (bad, sorted(set(bad.values()))))
    many = len(bad) != 1
    return _phrase(
        "restricted volume types",
        f"{'volumes' if many else 'volume'} {names} {'use' if many else 'uses'} restricted volume type {kinds}"
        if bad
        else "",
    )


def _non_root(spec: Object) -> str:
    pod = (spec.get("securityContext") or {}).get("runAsNonRoot")
    bad = [each for each in _containers(spec) if _context(each).get("runAsNonRoot", pod) is not True]
    text = "must set securityContext.runAsNonRoot=true"
    return _phrase("runAsNonRoot != true", f"pod or {_named(bad, text)}" if bad else "")


def _root_user(spec: Object) -> str:
    at_pod = (spec.get("securityContext") or {}).get("runAsUser") == 0
    bad = [each for each in _containers(spec) if _context(each).get("runAsUser") == 0]
    return _phrase(
        "runAsUser=0", "pod must not set runAsUser=0" if at_pod else "", _named(bad, "must not set runAsUser=0")
    )


def _seccomp_set(spec: Object) -> str:
    pod = _seccomp(spec.get("securityContext") or {})
    bad = [each for each in _containers(spec) if (_seccomp(_context(each)) or pod) not in _SECCOMP]
    text = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return _phrase("seccompProfile", f"pod or {_named(bad, text)}" if bad else "")


def _seccomp(context: Object) -> str:
    return str((context.get("seccompProfile") or {}).get("type", ""))


def _added(container: Object) -> frozenset[str]:
    return frozenset((_context(container).get("capabilities") or {}).get("add") or ())


def _dropped(container: Object) -> frozenset[str]:
    return frozenset((_context(container).get("capabilities") or {}).get("drop") or ())


_BASELINE: tuple[Check, ...] = (
    _host_namespaces,
    _privileged,
    _baseline_capabilities,
    _host_path,
    _host_ports,
    _proc_mount,
)
_LEVELS: dict[str, tuple[Check, ...]] = {
    "baseline": (*_BASELINE, _unconfined),
    "restricted": (
        *(check for check in _BASELINE if check is not _baseline_capabilities),
        _escalation,
        _capabilities,
        _volume_types,
        _non_root,
        _root_user,
        _seccomp_set,
    ),
}
