"""Where we deliberately answer otherwise than the recorded KubeVirt, and why. Read by test_oracle.py.

Three things hold for all cases and are not listed one by one: a cause is reported once, not twice; a path that KubeVirt
repeats in itself (`spec.domain.devices.disks.domain.devices.disks[0].io`) names the field itself; and
`status.guestOSInfo` is left out while nothing is known of the guest.
"""

from __future__ import annotations

_INVALID = "FieldValueInvalid"
_REQUIRED = "FieldValueRequired"

_NO_CAUSE = "KubeVirt answers 400 without a cause; a mistake has a path"
_SCHEMA_ECHO = "the API server adds a cause <nil> that says its other checks were left out"
_NO_FIELD = "KubeVirt names no field"

#: case → (our code, our causes, reason)
VERDICTS: dict[str, tuple[int, list[tuple[str, str]], str]] = {
    "mem-neg": (422, [("spec.domain.memory.guest", _INVALID)], "a negative size is a mistake"),
    "mem-milli": (422, [("spec.domain.memory.guest", _INVALID)], "0.128 bytes is a slip of the pen for 128Mi"),
    "hp-neg": (422, [("spec.domain.memory.hugepages.pageSize", _INVALID)], "a negative size is a mistake"),
    "ready-probe-exec-empty": (422, [("spec.readinessProbe.exec.command", _REQUIRED)], "there is nothing to run"),
    "live-probe-exec-empty": (422, [("spec.livenessProbe.exec.command", _REQUIRED)], "there is nothing to run"),
    "realtime-badmask": (422, [("spec.domain.cpu.realtime.mask", _INVALID)], "the machine could not start later"),
    "grace-neg": (422, [("spec.terminationGracePeriodSeconds", _INVALID)], "the Pod would be refused later"),
    "vol-cd-noimage": (422, [("spec.volumes[1].containerDisk.image", _REQUIRED)], "the Pod would be refused later"),
    "pod-cidr-bad": (422, [("spec.networks[0].pod.vmNetworkCIDR", _INVALID)], "the network could not be made later"),
    "mem-text": (422, [("spec.domain.memory.guest", _INVALID)], _NO_CAUSE),
    "cores-neg": (422, [("spec.domain.cpu.cores", _INVALID)], _NO_CAUSE),
    "boot-neg": (422, [("spec.domain.devices.disks[0].bootOrder", _INVALID)], _NO_CAUSE),
    "unknown-field": (422, [("spec.surprise", _INVALID)], "there it was the API server that refused it, not a webhook"),
    "no-memory": (422, [("spec.domain.memory.guest", _REQUIRED)], _NO_FIELD),
    "neg-cpu-req": (422, [("spec.domain.resources.requests.cpu", _INVALID)], "KubeVirt names the field <nil>"),
    "cores-max": (422, [("spec.domain.cpu", _INVALID)], "KubeVirt names the field <nil>"),
    "fs-notype": (422, [("spec.domain.devices.filesystems[0].virtiofs", _REQUIRED)], _NO_FIELD),
    "no-devices": (422, [("spec.domain.devices", _REQUIRED)], _NO_FIELD),
    "no-spec": (422, [("spec", _REQUIRED)], _NO_FIELD),
    "ac-qga-nousers": (
        422,
        [("spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users", _REQUIRED)],
        _NO_FIELD,
    ),
    "vm-rs-WaitAsReceiver": (
        201,
        [],
        "the gate DecentralizedLiveMigration is Beta and on in the version that we follow; it was off there",
    ),
    "rs-noselector": (422, [("spec.selector", _REQUIRED)], _SCHEMA_ECHO),
    "rs-notemplate": (422, [("spec.template", _REQUIRED)], _SCHEMA_ECHO),
    "pool-notemplate": (422, [("spec.virtualMachineTemplate", _REQUIRED)], _SCHEMA_ECHO),
    "rs-neg": (422, [("spec.replicas", _INVALID)], "there the API server's scale check names it .spec.replicas"),
}
