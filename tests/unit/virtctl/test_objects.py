"""Commands that read or change objects: volumes, services, guest information, configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from framework.fake_kube import FakeKube, failure

from .conftest import Run

SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default"
KUBEVIRT = "/apis/kubevirt.io/v1"
OBJECTS = f"{KUBEVIRT}/namespaces/default"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
DATA_VOLUMES = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes"


def accept_puts(kube: FakeKube) -> None:
    kube.on_request = lambda method, *_: (202, b"", {}) if method == "PUT" else None


def puts(kube: FakeKube) -> list[tuple[str, Any]]:
    return [(path.removeprefix(SUB), body) for method, path, _, body in kube.requests if method == "PUT"]


def test_addvolume_of_a_claim(kube: FakeKube, run: Run) -> None:
    accept_puts(kube)
    kube.put(f"{CLAIMS}/data", {})
    result = run("addvolume", "one", "--volume-name=data", "--persist")
    assert result.output == "Successfully submitted add volume request to VM one for volume data\n"
    body = {
        "name": "data",
        "disk": {"name": "data", "disk": {"bus": "scsi"}, "serial": "data"},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}},
    }
    assert puts(kube) == [("/virtualmachines/one/addvolume", body)]


def test_addvolume_of_a_data_volume_with_all_flags(kube: FakeKube, run: Run) -> None:
    accept_puts(kube)
    kube.put(f"{DATA_VOLUMES}/data", {})
    flags = ["--disk-name=d", "--serial=s", "--cache=none", "--disk-type=lun", "--bus=scsi", "--dry-run"]
    assert run("addvolume", "one", "--volume-name=data", *flags).exit_code == 0
    body = puts(kube)[0][1]
    assert body["name"] == "d"
    assert body["disk"] == {"name": "d", "lun": {"bus": "scsi"}, "serial": "s", "cache": "none"}
    assert body["volumeSource"] == {"dataVolume": {"name": "data", "hotpluggable": True}}
    assert body["dryRun"] == ["All"]


def test_addvolume_to_a_vmi_without_vm(kube: FakeKube, run: Run) -> None:
    def answer(method: str, path: str, *_: Any) -> Any:
        if method != "PUT":
            return None
        return failure(404, "NotFound", "no VM") if "/virtualmachines/" in path else (202, b"", {})

    kube.on_request = answer
    kube.put(f"{CLAIMS}/data", {})
    assert run("addvolume", "one", "--volume-name=data").exit_code == 0
    assert [path for path, _ in puts(kube)][-1] == "/virtualmachineinstances/one/addvolume"


def test_addvolume_tries_again_when_the_object_changed(
    kube: FakeKube, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("virtctl.volumes.time.sleep", lambda _s: None)
    kube.put(f"{CLAIMS}/data", {})
    concurrent = failure(422, "Invalid", "the server rejected our request due to an error in our request")
    answers = [concurrent, concurrent, (202, b"", {})]
    kube.on_request = lambda method, *_: answers.pop(0) if method == "PUT" else None
    assert run("addvolume", "one", "--volume-name=data").exit_code == 0
    kube.on_request = lambda method, *_: concurrent if method == "PUT" else None
    kube.requests.clear()
    assert run("removevolume", "one", "--volume-name=data").exit_code == 1
    assert len(puts(kube)) == 15


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--volume-name=data"], "neither a DataVolume nor a PersistentVolumeClaim data"),
        (["--volume-name=data", "--bus=sata"], "cannot be on bus 'sata'"),
        (["--volume-name=data", "--disk-type=lun", "--bus=virtio"], "use scsi"),
        (["--volume-name=data", "--cache=fast"], "Invalid value for '--cache'"),
        ([f"--volume-name={'x' * 64}"], "shorter --disk-name"),
        ([], "Missing option '--volume-name'"),
    ],
)
def test_addvolume_refusals(run: Run, flags: list[str], message: str) -> None:
    result = run("addvolume", "one", *flags)
    assert result.exit_code == 1
    assert message in result.output


def test_removevolume(kube: FakeKube, run: Run) -> None:
    accept_puts(kube)
    assert run("removevolume", "one", "--volume-name=data", "--dry-run").exit_code == 0
    assert puts(kube) == [("/virtualmachines/one/removevolume", {"name": "data", "dryRun": ["All"]})]


@pytest.mark.parametrize(
    ("verb", "subresource"), [("guestosinfo", "guestosinfo"), ("userlist", "userlist"), ("fslist", "filesystemlist")]
)
def test_guest_information(kube: FakeKube, run: Run, verb: str, subresource: str) -> None:
    answer = {"items": [{"userName": "root", "loginTime": 0, "mountPoint": "/", "totalBytes": 2048}], "hostname": "h"}
    kube.on_request = lambda *_: (200, answer, {})
    assert json.loads(run(verb, "one").output) == answer
    assert kube.requests == [("GET", f"{SUB}/virtualmachineinstances/one/{subresource}", {}, None)]
    assert yaml.safe_load(run(verb, "one", "-o", "yaml").output) == answer
    table = run(verb, "one", "-o", "table").output.splitlines()
    assert len(table) == 2
    assert table[1].split()[0] in ("h", "root", "/")


def test_guest_information_that_failed_is_plain_text(kube: FakeKube, run: Run) -> None:
    kube.on_request = lambda *_: (500, b"VMI does not have guest agent connected\n", {"Content-Type": "text/plain"})
    result = run("guestosinfo", "one")
    assert (result.exit_code, result.output) == (1, "Error: VMI does not have guest agent connected\n")


def test_expand(kube: FakeKube, run: Run, tmp_path: Path) -> None:
    kube.on_request = lambda *_: (200, {"kind": "VirtualMachine", "spec": {"a": 1}}, {})
    assert yaml.safe_load(run("expand", "--vm", "one").output)["spec"] == {"a": 1}
    assert kube.requests[-1][:2] == ("GET", f"{SUB}/virtualmachines/one/expand-spec")
    (tmp_path / "vm.yaml").write_text("kind: VirtualMachine\n")
    assert json.loads(run("expand", "-f", str(tmp_path / "vm.yaml"), "-o", "json").output)["kind"] == "VirtualMachine"
    assert kube.requests[-1] == ("PUT", f"{SUB}/expand-vm-spec", {}, {"kind": "VirtualMachine"})


@pytest.mark.parametrize(
    "args", [[], ["--vm=a", "--file=b"], ["-f", "/none"], ["-f", "/dev/null"], ["--vm=a", "-o", "xml"]]
)
def test_expand_refusals(run: Run, args: list[str]) -> None:
    assert run("expand", *args).exit_code == 1


@pytest.mark.parametrize("args", [(), ("--image", "tools:v1", "--pull-policy=Always"), ("--vm", "--root=true")])
def test_guestfs_names_what_does_the_same(kube: FakeKube, run: Run, args: tuple[str, ...]) -> None:
    """Whatever KubeVirt's own takes, and without a word to the cluster. What it names is a command that there is."""
    refused = run("guestfs", "disk-of-mine", *args)
    assert refused.exit_code == 1
    named = refused.output.partition("`virtctl ")[2].partition("`")[0]
    assert "--pvc disk-of-mine" in named
    assert not kube.requests
    assert run(*named.split(), "--help").exit_code == 0
    assert "vmexport download" in run("guestfs", "--help").output


def test_objectgraph(kube: FakeKube, run: Run) -> None:
    kube.on_request = lambda *_: (200, {"children": []}, {})
    assert json.loads(run("objectgraph", "one").output) == {"children": []}
    assert kube.requests[-1] == (
        "GET", f"{SUB}/virtualmachines/one/objectgraph", {}, {"includeOptionalNodes": True},
    )  # fmt: skip
    assert run("objectgraph", "one", "--vmi", "--exclude-optional", "--selector", "a=b,c=d").exit_code == 0
    _, path, _, body = kube.requests[-1]
    assert path.endswith("/virtualmachineinstances/one/objectgraph")
    assert body == {"includeOptionalNodes": False, "labelSelector": {"matchLabels": {"a": "b", "c": "d"}}}
    assert run("objectgraph", "one", "--selector", "a").exit_code == 1


def test_evacuate_cancel(kube: FakeKube, run: Run) -> None:
    accept_puts(kube)
    kube.put(f"{OBJECTS}/virtualmachineinstances/one", {"status": {"nodeName": "node1"}})
    assert run("evacuate-cancel", "vm", "one", "--dry-run").exit_code == 0
    assert puts(kube) == [("/virtualmachines/one/evacuate/cancel", {"evacuationNodeName": "node1", "dryRun": ["All"]})]
    kube.put(f"{OBJECTS}/virtualmachineinstances/two", {})
    assert "is on no node" in run("evacuate-cancel", "vmi", "two").output


def test_permitted_devices(kube: FakeKube, run: Run) -> None:
    assert "there is no KubeVirt object" in run("permitted-devices").output
    permitted = {"pciHostDevices": [{"resourceName": "a/b"}], "mediatedDevices": [{"resourceName": "c/d"}]}
    spec = {"configuration": {"permittedHostDevices": permitted}}
    kube.put(f"{KUBEVIRT}/namespaces/virtpod/kubevirts/kubevirt", {"spec": spec})
    assert run("permitted-devices").output == "Permitted Devices: \nHost Devices: \na/b \nGPU Devices: \nc/d\n"
    assert json.loads(run("permitted-devices", "-o", "json").output) == {"hostDevices": ["a/b"], "gpuDevices": ["c/d"]}


def test_log_verbosity(kube: FakeKube, run: Run) -> None:
    path = f"{KUBEVIRT}/namespaces/virtpod/kubevirts/kubevirt"
    kube.put(path, {"spec": {}})

    def levels() -> Any:
        return kube.objects[path]["spec"]["configuration"]["developerConfiguration"]["logVerbosity"]

    assert run("adm", "log-verbosity", "--virt-api").output == "virt-api=2\n"
    assert run("adm", "log-verbosity", "--virt-api=5", "--virt-handler=3").exit_code == 0
    assert levels() == {"virtAPI": 5, "virtHandler": 3}
    shown = run("adm", "log-verbosity", "--all").output.splitlines()
    assert shown[0] == "virt-api=5"
    assert len(shown) == 5
    assert run("adm", "log-verbosity", "--all=1", "--virt-api=7").exit_code == 0
    assert levels() == {
        "virtAPI": 7, "virtController": 1, "virtHandler": 1, "virtLauncher": 1, "virtOperator": 1,
    }  # fmt: skip
    assert run("adm", "log-verbosity", "--reset", "--virt-api=9").exit_code == 0
    assert levels() == {"virtAPI": 9}


@pytest.mark.parametrize("args", [[], ["--all", "--virt-api=3"], ["--reset", "--all=1"], ["--virt-api=11"]])
def test_log_verbosity_refusals(kube: FakeKube, run: Run, args: list[str]) -> None:
    assert run("adm", "log-verbosity", *args).exit_code == 1
    assert not kube.requests
