"""The chart's whole life on a cluster of its own: install, upgrade, roll back, refuse to go, go, come back.

A guest runs through all of it and never notices. Another cluster, since nothing else could run beside this.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.helm import CHART, ROOT, HelmError, helm

from tests.cluster import Cluster
from tests.e2e.engine import eventually

pytestmark = pytest.mark.own_cluster

NAME = "chart"
NAMESPACE = "virtpod"
IMAGES = ROOT / ".build" / "images"
GUEST = ROOT / "examples" / "vmi-guest.yaml"
SPACE = "e2e-chart"
EMULATION = "kubevirt: {configuration: {developerConfiguration: {useEmulation: true}}}\n"
NO_FINALIZER = '{"metadata": {"finalizers": null}}'
COMPONENTS = ("deployment/virt-api", "deployment/virt-controller", "daemonset/virt-handler")


class Release:
    """helm and kubectl on that cluster."""

    def __init__(self, cluster: Cluster, images: Path) -> None:
        self.cluster, self._images = cluster, images
        self.kubectl, self.get = cluster.kubectl, cluster.get

    def helm(self, *args: str, values: str = "", timeout_s: float = 300) -> str:
        return helm(*args, "--namespace", NAMESPACE, values=values, env=self.cluster.environment(), timeout_s=timeout_s)

    def put(self, *args: str, values: str = EMULATION) -> str:
        """What README says, and this machine's want of KVM."""
        files = ("--values", str(self._images))
        return self.helm(*args, str(CHART), *files, "--wait", "--timeout", "4m", values=values)

    def status(self) -> tuple[str, str]:
        """Its number and what it counts as."""
        found = json.loads(self.helm("status", "virtpod", "-o", "json"))
        return str(found["version"]), str(found["info"]["status"])

    def ready(self) -> None:
        for component in COMPONENTS:
            self.kubectl("-n", NAMESPACE, "rollout", "status", component, "--timeout=120s", timeout=130)
        self.kubectl("-n", NAMESPACE, "wait", "kubevirt/kubevirt", "--for=condition=Available", "--timeout=60s")

    def guest(self) -> dict[str, Any]:
        """All that would be another if the machine had been touched."""
        vmi = self.get("vmi", "guest", "-n", SPACE)
        pod = self.get("pods", "-n", SPACE, "-l", "kubevirt.io=virt-launcher")["items"]
        assert len(pod) == 1
        (compute,) = pod[0]["status"]["containerStatuses"]
        return {
            "phase": vmi["status"]["phase"],
            "uid": vmi["metadata"]["uid"],
            "transitions": vmi["status"]["phaseTransitionTimestamps"],
            "pod": pod[0]["metadata"]["uid"],
            "container": compute["containerID"],
            "restarts": compute["restartCount"],
        }

    def logs(self) -> str:
        select = ("-l", "kubevirt.io", "--tail=-1", "--prefix", "--all-containers")
        return self.kubectl("-n", NAMESPACE, "logs", *select, "--max-log-requests=20")


@pytest.fixture(scope="module")
def release(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    if not cluster.owned:
        pytest.skip("it installs and uninstalls, which nobody wants on a cluster that he uses")
    _tool("up", "--nodes", "1")
    try:
        own = Cluster.attach(NAME)
        # Those of now, whatever is built while this runs.
        images = tmp_path_factory.mktemp("images") / "values.yaml"
        images.write_text((IMAGES / "values.yaml").read_text())
        own.load(*sorted(IMAGES.glob("*.tar")))
        own.load(ROOT / ".build" / "guest", name="virtpod.internal/guest:v1")
        yield Release(own, images)
    finally:
        _tool("down")


def _tool(verb: str, *args: str) -> None:
    command = [sys.executable, "-m", "tests.cluster", verb, "--cluster", NAME, *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def refused(log: str) -> list[str]:
    """What RBAC said no to; a namespace that goes away says no in other words."""
    return [line for line in log.splitlines() if " cannot " in line and "resource" in line]


@pytest.mark.timeout(1500)  # Each step has a deadline of its own.
def test_the_whole_life(release: Release) -> None:
    _install(release)
    guest = _boot(release)
    _upgrade(release, guest)
    _roll_back(release, guest)
    _may_not_go(release, guest)
    _goes_without_machines(release)
    _comes_back(release)
    _leaves_machines_behind(release)


def _install(release: Release) -> None:
    said = release.put("install", "virtpod", "--create-namespace")
    assert "virtctl console guest" in said
    release.ready()
    services = release.get("apiservices", "-l", "app.kubernetes.io/part-of=virtpod")["items"]
    states = {s["metadata"]["name"]: {c["type"]: c["status"] for c in s["status"]["conditions"]} for s in services}
    assert {name: state["Available"] for name, state in states.items()} == {
        "v1.subresources.kubevirt.io": "True",
        "v1alpha3.subresources.kubevirt.io": "True",
    }


def _boot(release: Release) -> dict[str, Any]:
    """In a namespace that lets no Pod in that could harm its node."""
    release.kubectl("create", "namespace", SPACE)
    release.kubectl("label", "namespace", SPACE, "pod-security.kubernetes.io/enforce=restricted")
    release.kubectl("-n", SPACE, "apply", "-f", str(GUEST))
    eventually(lambda: release.get("vmi", "guest", "-n", SPACE)["status"]["phase"] == "Running", within_s=180)
    return release.guest()


def _upgrade(release: Release, guest: dict[str, Any]) -> None:
    """Another launcher image by name, another log level, another setting of the cluster."""
    values = (
        "images: {virtLauncher: {digest: ''}}\n"
        "virtApi: {logLevel: debug}\n"
        "kubevirt: {configuration: {evictionStrategy: LiveMigrate, developerConfiguration: {useEmulation: true}}}\n"
    )
    handlers = _pods(release, "virt-handler")
    release.put("upgrade", "virtpod", values=values)
    release.ready()
    assert not handlers & _pods(release, "virt-handler"), "virt-handler was not replaced"
    eventually(lambda: _setting(release) == "LiveMigrate", within_s=60, what="the new configuration")
    assert release.guest() == guest
    assert refused(release.logs()) == []


def _roll_back(release: Release, guest: dict[str, Any]) -> None:
    release.helm("rollback", "virtpod", "--wait", "--timeout", "4m")
    release.ready()
    eventually(lambda: _setting(release) == "", within_s=60, what="the old configuration")
    (container,) = release.get("deployment", "virt-api", "-n", NAMESPACE)["spec"]["template"]["spec"]["containers"]
    assert "--log-level=info" in container["args"]
    assert release.guest() == guest


def _may_not_go(release: Release, guest: dict[str, Any]) -> None:
    with pytest.raises(HelmError) as error:
        release.helm("uninstall", "virtpod")
    assert f"there is still 1 VMI (in namespace {SPACE})" in str(error.value)
    assert "--no-hooks" in str(error.value)
    release.ready()
    assert release.guest() == guest
    # As the README says: the release counts as half gone until it is told otherwise.
    revision, status = release.status()
    assert status == "uninstalling"
    release.helm("rollback", "virtpod", revision, "--wait", "--timeout", "4m")
    assert release.status()[1] == "deployed"
    assert release.guest() == guest


def _goes_without_machines(release: Release) -> None:
    release.kubectl("-n", SPACE, "delete", "vmi", "guest", "--timeout=120s", timeout=130)
    release.helm("uninstall", "virtpod", "--wait", "--timeout", "3m")
    left = release.kubectl(
        "get", "deployments,daemonsets,services,networkpolicies,serviceaccounts", "-n", NAMESPACE, "-o", "name"
    )
    assert left.split() == ["serviceaccount/default"]
    cluster_wide = "clusterroles,clusterrolebindings,apiservices,validatingwebhookconfigurations," + (
        "mutatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,priorityclasses"
    )
    assert release.kubectl("get", cluster_wide, "-l", "app.kubernetes.io/part-of=virtpod", "-o", "name") == ""
    kinds = release.get("crds", "-l", "app.kubernetes.io/part-of=virtpod")["items"]
    assert len(kinds) == 19
    assert release.get("kubevirt", "kubevirt", "-n", NAMESPACE)["spec"]["configuration"]["developerConfiguration"]


def _comes_back(release: Release) -> None:
    """Over the definitions, the configuration and the certificates that stayed."""
    release.put("install", "virtpod")
    release.ready()


def _leaves_machines_behind(release: Release) -> None:
    """Whoever insists may go; what was left can still be deleted although nobody takes its finalizer off any more."""
    vm = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "left", "namespace": SPACE},
        "spec": {
            "runStrategy": "Halted",
            "template": {"spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}},
        },
    }
    release.kubectl("apply", "-f", "-", stdin=json.dumps(vm))
    eventually(
        lambda: release.get("vm", "left", "-n", SPACE).get("status", {}).get("printableStatus") == "Stopped",
        within_s=30,
    )
    _without_virt_api(release)
    release.helm("uninstall", "virtpod", "--no-hooks", "--wait")
    assert release.get("vm", "left", "-n", SPACE)["status"]["printableStatus"] == "Stopped"
    release.kubectl("-n", SPACE, "delete", "vm", "left", "--wait=false")
    release.kubectl("-n", SPACE, "patch", "vm", "left", "--type=merge", "--patch", NO_FINALIZER)
    eventually(lambda: not release.get("vm", "-n", SPACE)["items"], within_s=30, what="the VM gone")


def _without_virt_api(release: Release) -> None:
    """Nothing unchecked is stored, and nothing is stuck: a finalizer can be taken off."""
    release.kubectl("-n", NAMESPACE, "scale", "deployment/virt-api", "--replicas=0")
    eventually(lambda: not _pods(release, "virt-api"), within_s=60, what="no virt-api left")
    change = ("-n", SPACE, "patch", "vm", "left", "--type=merge", "--patch")
    refusal = release.cluster.try_kubectl(*change, '{"spec": {"runStrategy": "Always"}}')
    assert "failed calling webhook" in refusal.stderr
    release.kubectl(*change, NO_FINALIZER)


def _pods(release: Release, component: str) -> set[str]:
    found = release.get("pods", "-n", NAMESPACE, "-l", f"kubevirt.io={component}")["items"]
    return {pod["metadata"]["uid"] for pod in found}


def _setting(release: Release) -> str:
    configuration = release.get("kubevirt", "kubevirt", "-n", NAMESPACE)["spec"].get("configuration", {})
    return str(configuration.get("evictionStrategy", ""))
