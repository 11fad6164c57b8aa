"""The values: each is documented, and what is not a value is refused with a sentence that names it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from framework.helm import CHART, NAMESPACE, RELEASE, ROOT, HelmError, helm, objects, template

from virt_core.apis.base import from_plain
from virt_core.apis.kubevirt import KubeVirt
from virt_core.kube.clusterconfig import effective

sys.path.insert(0, str(ROOT / "hack"))

import chart_values

TEXT = (CHART / "values.yaml").read_text(encoding="utf-8")


def leaves(node: Any, path: str = "") -> Iterator[str]:
    if not isinstance(node, dict) or not node:
        yield path
        return
    for key, value in node.items():
        yield from leaves(value, f"{path}.{key}" if path else key)


def test_every_value_is_documented() -> None:
    known = chart_values.documented(TEXT)
    missing = [leaf for leaf in leaves(yaml.safe_load(TEXT)) if not any(_covers(path, leaf) for path in known)]
    assert missing == []


def _covers(path: str, leaf: str) -> bool:
    return leaf == path or leaf.startswith(f"{path}.")


def test_the_readme_says_what_the_comments_say() -> None:
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    assert "| `virtApi.replicas` | `2` | Copies of virt-api." in readme
    assert len(chart_values.documented(TEXT)) == readme.count("\n| `")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ("virtApi: {replica: 3}", "'replica' not allowed"),
        ("virtAPI: {replicas: 3}", "'virtAPI' not allowed"),
        ("virtApi: {replicas: 0}", "/virtApi/replicas"),
        ("virtApi: {logLevel: loud}", "/virtApi/logLevel"),
        ("virtApi: {resources: {request: {cpu: 1}}}", "'request' not allowed"),
        ("virtHandler: {kubeletRoot: var/lib/kubelet}", "/virtHandler/kubeletRoot"),
        ("virtHandler: {maxUnavailable: some}", "/virtHandler/maxUnavailable"),
        ("images: {pullPolicy: Sometimes}", "/images/pullPolicy"),
        ("images: {virtApi: {digest: 'sha256:12'}}", "/images/virtApi/digest"),
        ("certificates: {provider: nobody}", "/certificates/provider"),
        ("virtController: {exportCA: soon}", "/virtController/exportCA"),
        ("virtController: {exportCA: '-----BEGIN CERTIFICATE-----'}", "virtController.exportURL, which is empty"),
        ("certificates: {leafLifetime: 7}", "/certificates/leafLifetime"),
        ("kubevirt: {configuration: {developerConfiguration: {useEmulatio: true}}}", "'useEmulatio' not allowed"),
        ("kubevirt: {configuration: {featureGates: [X]}}", "'featureGates' not allowed"),
        ("networkPolicies: {metricsFrom: [{pods: {}}]}", "'pods' not allowed"),
        ("uninstall: {allowWithMachines: maybe}", "/uninstall/allowWithMachines"),
    ],
)
def test_a_wrong_value_is_named(values: str, told: str) -> None:
    with pytest.raises(HelmError) as refused:
        template(values)
    assert told in str(refused.value)


def test_the_configuration_arrives_as_it_was_written() -> None:
    """And virt-controller can read it."""
    values = "kubevirt: {configuration: {evictionStrategy: LiveMigrate, developerConfiguration: {useEmulation: true}}}"
    for given in ("", values):
        config = next(o for o in objects(template(given)) if o["metadata"]["name"] == "virtpod-kubevirt")
        document = yaml.safe_load(config["data"]["kubevirt.yaml"])
        kubevirt = from_plain(document, KubeVirt)
        assert (kubevirt.metadata.name, kubevirt.metadata.namespace) == ("kubevirt", "virtpod")
        assert effective(document["spec"]["configuration"], None).use_emulation is bool(given)


def test_notes_say_what_to_type_next() -> None:
    said = helm("install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--dry-run=client", "--hide-secret")
    notes = said.partition("NOTES:")[2]
    for line in (
        "kubectl -n virtpod wait kubevirt/kubevirt --for=condition=Available",
        "kubectl apply -f examples/vmi-guest.yaml",
        "virtctl console guest",
        "pod-security.kubernetes.io/enforce=privileged",
    ):
        assert line in notes
    assert (ROOT / "examples" / "vmi-guest.yaml").exists()


def test_notes_warn_when_prometheus_is_shut_out() -> None:
    install = ("install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--dry-run=client", "--hide-secret")
    warning = "let nobody read the metrics of virt-controller and virt-handler"
    shut = "serviceMonitor: {enabled: true}\n"
    assert warning in helm(*install, values=shut).partition("NOTES:")[2]
    for values in (
        "serviceMonitor: {enabled: false}",
        shut + "networkPolicies: {enabled: false}",
        shut + "networkPolicies: {metricsFrom: [{podSelector: {}}]}",
    ):
        assert warning not in helm(*install, values=values)
