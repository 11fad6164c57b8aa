"""Hook sidecars in the launcher Pod."""

from __future__ import annotations

import json
from typing import Any

import pytest
from framework.vmis import vmi

from virt_controller.launcher_pod import TemplateConfig, UnsupportedSpecError, render
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.hooksidecars import MOST, fault_of
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig

OPEN = TemplateConfig("example.internal/launcher:v1", cluster=ClusterConfig(feature_gates=frozenset({"Sidecar"})))
IMAGE = {"image": "example.internal/hook:v1", "args": ["--version", "v1alpha2"]}
SHARED = {"name": "data", "volumePath": "/debug", "sharedComputePath": "/var/run/debug"}
SCRIPT = {"configMap": {"name": "scripts", "key": "run.py", "hookPath": "/usr/bin/onDefineDomain"}}


def hooked(*sidecars: Any, **spec: Any) -> VirtualMachineInstance:
    annotations = {names.ANNOTATION_HOOK_SIDECARS: json.dumps(sidecars)}
    return vmi(metadata={"annotations": annotations}, spec=spec)


def pod(*sidecars: Any, **spec: Any) -> Any:
    return to_plain(render(hooked(*sidecars, **spec), OPEN))["spec"]


def test_each_sidecar_has_sockets_of_its_own_and_nothing_of_the_launchers() -> None:
    spec = pod(IMAGE, SCRIPT)
    compute, first, second = spec["containers"]
    assert compute["args"][compute["args"].index("--hook-sidecars") + 1] == "2"
    assert first["volumeMounts"] == [{"name": "hook-sidecar-0-sockets", "mountPath": "/var/run/kubevirt-hooks"}]
    assert second["volumeMounts"][0] == {"name": "hook-sidecar-1-sockets", "mountPath": "/var/run/kubevirt-hooks"}
    seen = {mount["name"]: mount["mountPath"] for mount in compute["volumeMounts"]}
    assert seen["hook-sidecar-0-sockets"] == "/var/run/kubevirt-hooks/hook-sidecar-0"
    assert "hook-sidecar-1-script" not in seen
    for container in (first, second):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_an_image_is_run_as_its_author_says() -> None:
    container = pod({**IMAGE, "command": ["/hook"], "imagePullPolicy": "Always", **SCRIPT})["containers"][1]
    found = [container[key] for key in ("name", "image", "command", "args", "imagePullPolicy")]
    assert found == ["hook-sidecar-0", IMAGE["image"], ["/hook"], IMAGE["args"], "Always"]
    script = container["volumeMounts"][1]
    assert (script["mountPath"], script["subPath"]) == ("/usr/bin/onDefineDomain", "onDefineDomain")
    assert "readOnlyRootFilesystem" not in container["securityContext"]


def test_a_script_without_an_image_is_run_by_our_own() -> None:
    spec = pod(SCRIPT)
    container = spec["containers"][1]
    assert (container["image"], container["command"]) == (OPEN.launcher_image, ["sidecar-shim"])
    assert container["volumeMounts"][1]["mountPath"] == names.PATH_HOOK_SCRIPTS
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    (volume,) = [each for each in spec["volumes"] if each["name"] == "hook-sidecar-0-script"]
    assert volume["configMap"] == {
        "name": "scripts",
        "items": [{"key": "run.py", "path": "onDefineDomain"}],
        "defaultMode": 0o755,
    }


def test_a_claim_is_shared_by_a_sidecar_and_the_launcher_only() -> None:
    spec = pod({**IMAGE, "pvc": SHARED}, IMAGE)
    compute, first, second = spec["containers"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "hook-sidecar-0-claim"]
    assert volume["persistentVolumeClaim"] == {"claimName": "data"}
    places = [{m["name"]: m["mountPath"] for m in each["volumeMounts"]} for each in (compute, first, second)]
    assert [each.get(volume["name"]) for each in places] == ["/var/run/debug", "/debug", None]
    alone = pod({**IMAGE, "pvc": {"name": "data", "volumePath": "/debug"}})["containers"]
    assert [any(m["name"] == volume["name"] for m in each["volumeMounts"]) for each in alone] == [False, True]


def test_a_guaranteed_pod_stays_one() -> None:
    own = {"cpu": {"cores": 1, "dedicatedCpuPlacement": True}, "memory": {"guest": "64Mi"}, "devices": {}}
    resources = pod(IMAGE, domain=own, volumes=[], networks=[])["containers"][1]["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": "200m", "memory": "64M"}
    assert "resources" not in pod(IMAGE)["containers"][1]


def test_none_costs_nothing() -> None:
    assert "--hook-sidecars" not in pod()["containers"][0]["args"]
    assert len(to_plain(render(vmi(), OPEN))["spec"]["containers"]) == 1


def test_the_gate_is_asked_again() -> None:
    with pytest.raises(UnsupportedSpecError, match="needs the feature gate Sidecar"):
        render(hooked(IMAGE), TemplateConfig("example.internal/launcher:v1"))


@pytest.mark.parametrize(
    ("sidecars", "why"),
    [
        ([{}], "[0] must have an image"),
        ([IMAGE, {"image": "x", "pvc": {"name": "c"}}], "must be a JSON list of sidecars"),
        ([{"image": "x", "pvc": {**SHARED, "name": ""}}], "[0].pvc.name: must name"),
        ([{"image": "x", "pvc": {**SHARED, "volumePath": "debug"}}], "[0].pvc.volumePath: must be a plain"),
        ([{"image": "x", "pvc": {**SHARED, "volumePath": "/var/run"}}], "[0].pvc.volumePath: must be a plain"),
        *(
            ([{"image": "x", "pvc": {**SHARED, "sharedComputePath": path}}], "[0].pvc.sharedComputePath: must be")
            for path in (
                "/usr/bin",
                "/var/run",
                "/var/run/kubevirt",
                "/var/run/../x",
                "/var/run/libvirt/x",
                "/dev",
                "a",
            )
        ),
        ([{"image": "x", "downwardAPI": "device-info"}], "[0].downwardAPI: "),
        ([{"image": "x", "imagePullPolicy": "Sometimes"}], "[0].imagePullPolicy: must be one of Always"),
        ([{"image": "x", "privileged": True}], "unknown field `privileged`"),
        ([{"configMap": {**SCRIPT["configMap"], "hookPath": "/usr/bin/other"}}], "[0].configMap.hookPath: without"),
        ([{"configMap": {**SCRIPT["configMap"], "hookPath": "/usr/../onDefineDomain"}}], "plain, absolute path"),
        ([{"configMap": {**SCRIPT["configMap"], "key": "../x"}}], "[0].configMap: must name a ConfigMap"),
        ([IMAGE] * (MOST + 1), f"at most {MOST} are allowed"),
        ({"image": "x"}, "must be a JSON list of sidecars"),
        ("x", "must be a JSON list of sidecars"),
    ],
)
def test_what_cannot_be_had_is_named(sidecars: Any, why: str) -> None:
    fault = fault_of({names.ANNOTATION_HOOK_SIDECARS: json.dumps(sidecars)})
    assert fault is not None
    assert why in fault
    with pytest.raises(UnsupportedSpecError, match="hookSidecars"):
        render(vmi(metadata={"annotations": {names.ANNOTATION_HOOK_SIDECARS: json.dumps(sidecars)}}), OPEN)


def test_an_annotation_that_is_no_json() -> None:
    assert "must be a JSON list" in (fault_of({names.ANNOTATION_HOOK_SIDECARS: "[{"}) or "")
    assert fault_of({}) is None
