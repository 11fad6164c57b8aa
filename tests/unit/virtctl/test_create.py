"""`virtctl create`: every flag, and the manifest that it makes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from framework.creating import made, refusal, run, template, vm


def test_a_vm_with_nothing_said() -> None:
    manifest = made("vm")
    assert manifest["metadata"]["name"].startswith("vm-")
    assert len(manifest["metadata"]["name"]) == 8
    assert manifest["spec"] == {
        "runStrategy": "Always",
        "template": {
            "spec": {
                "domain": {"devices": {}, "memory": {"guest": "512Mi"}},
                "terminationGracePeriodSeconds": 180,
            }
        },
    }


def test_name_namespace_and_form() -> None:
    manifest = made("vm", "--name=one", "-n", "here", "-o", "json")
    assert manifest["metadata"] == {"name": "one", "namespace": "here"}


def test_run_strategy_memory_and_grace_period() -> None:
    spec = vm("--run-strategy=rerunonfailure", "--memory=1Gi", "--termination-grace-period=5")
    assert spec["runStrategy"] == "RerunOnFailure"
    assert spec["template"]["spec"]["domain"]["memory"] == {"guest": "1Gi"}
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 5
    assert "invalid run strategy" in refusal("vm", "--run-strategy=Sometimes")
    assert '"--memory" flag' in refusal("vm", "--memory=much")


def test_instancetype_and_preference() -> None:
    spec = vm("--instancetype=small", "--preference=VirtualMachinePreference/linux")
    assert spec["instancetype"] == {"name": "small"}
    assert spec["preference"] == {"name": "linux", "kind": "virtualmachinepreference"}
    assert "memory" not in spec["template"]["spec"]["domain"]
    assert "invalid instancetype kind" in refusal("vm", "--instancetype=pod/x")
    assert "slashes" in refusal("vm", "--preference=a/b/c")


def test_volumes_and_boot_order() -> None:
    spec = template(
        "--name=one",
        "--volume-containerdisk=src:reg/image:tag",
        "--volume-containerdisk=src:other,name:second,bootorder:2",
        "--volume-pvc=src:claim,bootorder:1",
        "--volume-sysprep=src:answers,type:secret",
    )
    assert spec["volumes"] == [
        {"name": "one-containerdisk-0", "containerDisk": {"image": "reg/image:tag"}},
        {"name": "second", "containerDisk": {"image": "other"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "sysprepdisk", "sysprep": {"secret": {"name": "answers"}}},
    ]
    assert spec["domain"]["devices"]["disks"] == [
        {"name": "second", "bootOrder": 2},
        {"name": "claim", "bootOrder": 1},
    ]


@pytest.mark.parametrize(
    ("params", "source"),
    [
        ("type:blank,size:1Gi", {"source": {"blank": {}}}),
        ("type:gcs,size:1Gi,url:gs://x,secretref:s", {"source": {"gcs": {"url": "gs://x", "secretRef": "s"}}}),
        (
            "type:http,size:1Gi,url:http://x,extraheaders:a;b,certconfigmap:c",
            {"source": {"http": {"url": "http://x", "extraHeaders": ["a", "b"], "certConfigMap": "c"}}},
        ),
        ("type:imageio,size:1Gi,url:u,diskid:d", {"source": {"imageio": {"url": "u", "diskId": "d"}}}),
        ("type:pvc,src:ns/claim", {"source": {"pvc": {"name": "claim", "namespace": "ns"}}}),
        (
            "type:registry,size:1Gi,url:docker://x,pullmethod:node",
            {"source": {"registry": {"url": "docker://x", "pullMethod": "node"}}},
        ),
        ("type:s3,size:1Gi,url:u", {"source": {"s3": {"url": "u"}}}),
        (
            "type:vddk,size:1Gi,url:u,uuid:i,thumbprint:t,secretref:s,backingfile:b",
            {"source": {"vddk": {"url": "u", "uuid": "i", "thumbprint": "t", "secretRef": "s", "backingFile": "b"}}},
        ),
        ("type:snapshot,src:ns/snap", {"source": {"snapshot": {"name": "snap", "namespace": "ns"}}}),
        ("type:ds,src:ns/data", {"sourceRef": {"kind": "DataSource", "name": "data", "namespace": "ns"}}),
        ("type:ds,src:data", {"sourceRef": {"kind": "DataSource", "name": "data"}}),
    ],
)
def test_imported_volumes(params: str, source: dict[str, Any]) -> None:
    spec = vm(f"--volume-import={params},name:vol")
    size = {"resources": {"requests": {"storage": "1Gi"}}} if "size" in params else {}
    assert spec["dataVolumeTemplates"] == [{"metadata": {"name": "vol"}, "spec": {**source, "storage": size}}]
    assert spec["template"]["spec"]["volumes"] == [{"name": "vol", "dataVolume": {"name": "vol"}}]


def test_old_import_flags_still_work() -> None:
    result = run(
        "vm",
        "--volume-blank=size:1Gi,name:b",
        "--volume-datasource=src:d,name:a",
        "--volume-import=type:blank,size:1Gi,name:c",
    )
    assert "--volume-blank has been deprecated" in result.stderr
    volumes = yaml.safe_load(result.stdout)["spec"]["template"]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--volume-pvc=claim"], "params need to have at least one colon: claim"),
        (["--volume-pvc=name:a"], "src must be specified"),
        (["--volume-pvc=src:ns/a"], "not allowed to specify namespace of pvc"),
        (["--volume-pvc=src:a,shape:round"], "unknown param(s): shape:round"),
        (["--volume-pvc=src:a,bootorder:0"], "bootorder must be greater than 0"),
        (["--volume-pvc=src:a,bootorder:x"], 'failed to parse param "bootorder"'),
        (["--volume-pvc=src:a,bootorder:1", "--volume-pvc=src:b,bootorder:1"], "specified multiple times"),
        (["--volume-pvc=src:a", "--volume-containerdisk=src:x,name:a"], 'already a volume with name "a"'),
        (["--volume-pvc=src:A_B"], "invalid name"),
        (["--volume-import=size:1Gi"], "type must be specified"),
        (["--volume-import=type:tape"], "invalid volume import type"),
        (["--volume-import=type:blank"], "size must be specified"),
        (["--volume-import=type:blank,size:big"], '"--volume-import" flag'),
        (["--volume-import=type:pvc,src:claim"], 'namespace of pvc "claim" must be specified'),
        (["--volume-import=type:registry,size:1Gi"], "exactly one of url or imagestream"),
        (["--volume-import=type:registry,size:1Gi,url:u,pullmethod:x"], "pullmethod must be set to pod or node"),
        (["--volume-import=type:vddk,size:1Gi,url:u"], "uuid must be specified"),
        (["--volume-sysprep=src:a,type:tape"], "invalid sysprep source type"),
        (["--memory=1Gi", "--instancetype=x"], "--memory and --instancetype exclude each other"),
        (["--preference=x", "--infer-preference"], "exclude each other"),
        (["--user=me", "--cloud-init-user-data=eA=="], "exclude each other"),
    ],
)
def test_refusals(flags: list[str], message: str) -> None:
    assert message in refusal("vm", *flags)


def test_inference_is_tried_by_itself() -> None:
    spec = vm("--volume-pvc=src:a", "--volume-pvc=src:b,bootorder:1")
    matcher = {"inferFromVolume": "b", "inferFromVolumeFailurePolicy": "Ignore"}
    assert (spec["instancetype"], spec["preference"]) == (matcher, matcher)
    assert spec["template"]["spec"]["domain"]["memory"] == {"guest": "512Mi"}
    plain = vm("--volume-pvc=src:a", "--infer-instancetype=false", "--no-infer-preference")
    assert not {"instancetype", "preference"} & set(plain)
    assert "instancetype" not in vm("--volume-pvc=src:a", "--memory=1Gi")
    assert "instancetype" not in vm("--volume-containerdisk=src:a")


def test_inference_that_was_asked_for() -> None:
    spec = vm(
        "--volume-pvc=src:a",
        "--volume-import=type:ds,src:x,name:b",
        "--infer-instancetype",
        "--infer-preference-from=b",
    )
    assert (spec["instancetype"], spec["preference"]) == ({"inferFromVolume": "a"}, {"inferFromVolume": "b"})
    assert "memory" not in spec["template"]["spec"]["domain"]
    assert "at least one volume" in refusal("vm", "--infer-instancetype")
    assert "no volume with name" in refusal("vm", "--volume-pvc=src:a", "--infer-preference-from=z")
    assert "nothing can be inferred" in refusal("vm", "--volume-containerdisk=src:a", "--infer-preference")
    assert "nothing can be inferred" in refusal("vm", "--volume-import=type:blank,size:1Gi", "--infer-preference")
