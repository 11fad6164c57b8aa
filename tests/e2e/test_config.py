"""The KubeVirt object is the configuration, and a change of it needs no restart."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import COMPONENTS, KUBEVIRT, Configure, Space, admitted
from .engine import Engine, eventually
from .manifests import kernel_boot, vmi
from .test_instancetype import size, vm

pytestmark = [pytest.mark.e2e, pytest.mark.alone]


def bare_vmi(name: str) -> dict[str, Any]:
    """A VMI that says nothing about networks."""
    manifest = vmi(name, networks=[])
    del manifest["spec"]["domain"]["devices"]["interfaces"]
    return manifest


def qemu(engine: Engine, space: Space, name: str) -> str:
    pid = engine.qemu_pid(space.namespace, name)
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def test_there_is_one_from_the_start_and_it_is_deployed(engine: Engine) -> None:
    status = eventually(
        lambda: (s := engine.get(*KUBEVIRT).get("status", {})).get("phase") == "Deployed" and s,
        within_s=20,
        what="phase Deployed",
    )
    assert status["observedKubeVirtVersion"] == status["targetKubeVirtVersion"]
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert conditions["Available"] == "True"
    assert conditions["Degraded"] == "False"
    assert "Deployed" in engine.kubectl("get", "-n", "virtpod", "kv")


def test_what_has_no_effect_is_said(engine: Engine) -> None:
    """To the person who writes it, who could take the answer for a promise."""
    patch = json.dumps({"spec": {"imageTag": "v1"}})
    done = engine.run("kubectl", "patch", *KUBEVIRT, "--type=merge", "--dry-run=server", "-p", patch)
    assert done.returncode == 0, done.stderr
    assert "Warning: spec.imageTag has no effect: " in done.stderr


def test_the_default_network_changes_at_once(space: Space, configure: Configure) -> None:
    def binding() -> Any:
        return admitted(space, bare_vmi("net"))["spec"]["domain"]["devices"]["interfaces"][0]

    assert "bridge" in binding()
    configure({"network": {"defaultNetworkInterface": "masquerade"}})
    eventually(lambda: "masquerade" in binding(), within_s=10, what="masquerade by default")


def test_a_feature_gate_opens_and_closes(space: Space, configure: Configure) -> None:
    manifest = vmi("gate")
    manifest["spec"]["domain"]["devices"]["autoattachVSOCK"] = True
    assert admitted(space, manifest) is None
    configure({"developerConfiguration": {"featureGates": ["VSOCK"]}})
    eventually(lambda: admitted(space, manifest), within_s=10, what="the gate is open")
    configure({"developerConfiguration": {"featureGates": []}})
    eventually(lambda: admitted(space, manifest) is None, within_s=10, what="the gate is closed")


def test_ignition_reaches_the_guest_where_its_gate_is_open(space: Space, configure: Configure) -> None:
    manifest = kernel_boot("ignited")
    manifest["metadata"]["annotations"] = {"kubevirt.io/ignitiondata": '{"ignition": {"version": "3.4.0"}}'}
    assert admitted(space, manifest) is None
    configure({"developerConfiguration": {"featureGates": ["ExperimentalIgnitionSupport"]}})
    eventually(lambda: admitted(space, manifest), within_s=10, what="the gate is open")
    space.boot(manifest)
    with space.console("ignited") as console:
        console.prompt()
        shown = console.shell("cat /sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw")
    assert '{"ignition": {"version": "3.4.0"}}' in shown


def test_models_eviction_and_hotplug_limits(space: Space, configure: Configure) -> None:
    configure(
        {
            "cpuModel": "Nehalem",
            "evictionStrategy": "LiveMigrateIfPossible",
            "liveUpdateConfiguration": {"maxHotplugRatio": 2},
            "architectureConfiguration": {"amd64": {"machineType": "pc-q35-7.2"}},
        }
    )

    def check() -> bool:
        spec = admitted(space, vmi("model"))["spec"]
        cpu = spec["domain"]["cpu"]
        return (cpu["model"], cpu["maxSockets"], spec["evictionStrategy"], spec["domain"]["machine"]["type"]) == (
            "Nehalem", 2, "LiveMigrateIfPossible", "pc-q35-7.2",
        )  # fmt: skip

    eventually(check, within_s=10, what="the new defaults")


def test_the_pod_and_the_machine_follow(engine: Engine, space: Space, configure: Configure) -> None:
    """virt-controller books by the new ratio, virt-handler passes the new identity on."""
    configure(
        {
            "developerConfiguration": {"cpuAllocationRatio": 4, "memoryOvercommit": 200},
            "smbios": {"manufacturer": "Acme", "family": "Roadrunner"},
            "memBalloonStatsPeriod": 7,
        }
    )
    eventually(
        lambda: "the configuration changed" in engine.log_of("virt-handler"), within_s=10, what="virt-handler heard"
    )
    space.boot(vmi("shape"))
    compute = engine.get("-n", space.namespace, "pods")["items"][0]["spec"]["containers"][0]
    assert compute["resources"]["requests"]["cpu"] == "250m"
    command = qemu(engine, space, "shape")
    assert "manufacturer=Acme" in command
    assert "family=Roadrunner" in command


def test_without_emulation_a_machine_waits_for_kvm(engine: Engine, space: Space, configure: Configure) -> None:
    nodes = engine.get("nodes")["items"]
    if any(node["status"]["allocatable"].get("devices.kubevirt.io/kvm", "0") != "0" for node in nodes):
        pytest.skip("only where no node has KVM")
    configure({"developerConfiguration": {"useEmulation": False}})
    eventually(lambda: waits(engine, space), within_s=40, what="a Pod that asks for KVM")


def waits(engine: Engine, space: Space) -> bool:
    """Makes a VMI and looks whether its Pod asks for KVM; the first may have been quicker than the change."""
    name = f"kvm-{os.urandom(3).hex()}"
    space.apply(vmi(name))
    pod = eventually(
        lambda: [p for p in engine.get("-n", space.namespace, "pods")["items"] if f"-{name}-" in p["metadata"]["name"]],
        within_s=10,
        what="a launcher Pod",
    )[0]
    asked = "devices.kubevirt.io/kvm" in pod["spec"]["containers"][0]["resources"].get("limits", {})
    space.kubectl("delete", "vmi", name, "--wait=false")
    return asked


def test_the_reference_policy_writes_the_size_into_the_vm(space: Space, configure: Configure) -> None:
    configure({"instancetype": {"referencePolicy": "expand"}})
    eventually(
        lambda: "the configuration changed" in space.engine.log_of("virt-controller"), within_s=10, what="it was heard"
    )
    space.apply(size("small"))
    space.apply(vm("whole", "small", strategy="Halted"))

    eventually(lambda: stands_for_itself(space, "whole"), within_s=20, what="a VM that stands for itself")


def stands_for_itself(space: Space, name: str) -> bool:
    spec = space.engine.get("-n", space.namespace, "vm", name)["spec"]
    return "instancetype" not in spec and spec["template"]["spec"]["domain"]["cpu"]["sockets"] == 2


def test_the_policy_for_all_reaches_a_vm_that_has_its_size_already(space: Space, configure: Configure) -> None:
    space.apply(size("small"))
    space.apply(vm("sized", "small", strategy="Halted"))

    def revision() -> Any:
        status = space.engine.get("-n", space.namespace, "vm", "sized")["status"]
        return status["instancetypeRef"]["controllerRevisionRef"]["name"]

    eventually(revision, within_s=20, what="the revision that holds its size")
    configure({"instancetype": {"referencePolicy": "expandAll"}})

    def expanded() -> bool:
        """A VM is looked at when it changes."""
        space.kubectl("annotate", "vm", "sized", "--overwrite", f"poke={time.monotonic()}")
        return stands_for_itself(space, "sized")

    eventually(expanded, within_s=30, what="a VM that stands for itself")


def test_what_can_not_work_is_refused_with_its_path(engine: Engine) -> None:
    patch = json.dumps({"spec": {"configuration": {"imagePullPolicy": "Sometimes"}}})
    done = engine.run("kubectl", "patch", *KUBEVIRT, "--type=merge", "-p", patch)
    assert done.returncode != 0
    assert "spec.configuration.imagePullPolicy" in done.stderr


def test_a_second_one_is_refused(engine: Engine) -> None:
    second = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "second"}, "spec": {}}
    done = engine.run("kubectl", "-n", "virtpod", "create", "-f", "-", stdin=json.dumps(second))
    assert done.returncode != 0
    assert "already" in done.stderr


def test_log_verbosity_changes_while_running(engine: Engine, configure: Configure) -> None:
    assert '"level":"debug"' not in engine.log_of("virt-api").replace(" ", "")
    configure({"developerConfiguration": {"logVerbosity": {"virtAPI": 6, "virtController": 6, "virtHandler": 6}}})
    eventually(
        lambda: all(engine.log_of(name).count("the log level is now debug") for name in COMPONENTS),
        within_s=10,
        what="every component changed its level",
    )


#: Asks for the system call by which memory is fetched from another node, in the form that needs no right.
FETCH = """
import ctypes, os, platform
number = {"x86_64": 323, "aarch64": 282}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(number, os.O_CLOEXEC | 1)
print("allowed" if fd >= 0 else f"errno {ctypes.get_errno()}")
"""


def test_the_cluster_says_which_system_calls_a_machine_may_use(space: Space, configure: Configure) -> None:
    """The runtime keeps post-copy from a launcher, and the profile that virt-handler brings to the node does not."""
    profile = {"customProfile": {"localhostProfile": "kubevirt/kubevirt.json"}}
    found = {}
    for name in ("narrow", "wide"):
        space.boot(kernel_boot(name))
        pods = space.engine.get("-n", space.namespace, "pods", "-l", f"vm.kubevirt.io/name={name}")["items"]
        [pod] = [each for each in pods if each["status"]["phase"] == "Running"]
        said = space.kubectl("exec", pod["metadata"]["name"], "-c", "compute", "--", "python3", "-c", FETCH)
        found[name] = (pod["spec"]["securityContext"]["seccompProfile"]["type"], said.strip())
        configure({"seccompConfiguration": {"virtualMachineInstanceProfile": profile}})
        eventually(lambda: seccomp_of(space) == profile, within_s=10, what="the profile is the cluster's")
    assert found["narrow"][0] == "RuntimeDefault"
    assert found["narrow"][1].startswith("errno")
    assert found["wide"] == ("Localhost", "allowed")


def seccomp_of(space: Space) -> Any:
    configuration = space.engine.get(*KUBEVIRT)["spec"]["configuration"]
    return configuration.get("seccompConfiguration", {}).get("virtualMachineInstanceProfile")
