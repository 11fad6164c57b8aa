"""What the rendered objects must be, whatever the files look like."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import click
import pytest
from framework.chart import COMPONENTS, args, containers, one, pod_specs, rendered
from framework.helm import CHART, template

from virt_core import __version__, manifests
from virt_core.apis import names
from virt_core.apis.crds import plain_definitions

SECRET_LIMIT = 1 << 20
KEEP = "helm.sh/resource-policy"


def test_shared_manifests_are_those_of_virt_local() -> None:
    """In another namespace too; only labels are added, and the CA bundle is left to who knows it."""
    for name in ("rbac.yaml", "roles.yaml", "webhooks.yaml", "apiservice.yaml", "uploads.yaml"):
        given = "dataVolumes: {enabled: true}" if name == "uploads.yaml" else ""
        for wanted in manifests.load(name):
            if wanted["kind"] == "Namespace":
                continue
            found = one(wanted["kind"], wanted["metadata"]["name"], given, namespace="elsewhere")
            labels = found["metadata"]["labels"]
            assert labels.items() >= wanted["metadata"]["labels"].items()
            assert labels["app.kubernetes.io/part-of"] == "virtpod"
            assert _plain(found) == _plain(wanted), f"{wanted['kind']} {wanted['metadata']['name']}"


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        left = {key: _plain(value) for key, value in node.items() if key not in ("caBundle", "labels")}
        if "namespace" in left:
            left["namespace"] = {"elsewhere": "virtpod"}.get(left["namespace"], left["namespace"])
        return left
    return [_plain(item) for item in node] if isinstance(node, list) else node


def test_definitions_are_those_of_the_structs_and_outlive_the_release() -> None:
    for wanted in plain_definitions().values():
        found = one("CustomResourceDefinition", wanted["metadata"]["name"])
        assert found["spec"] == json.loads(json.dumps(wanted["spec"]))
        assert found["metadata"]["annotations"] == {KEEP: "keep"}
        assert found["metadata"]["labels"].items() >= wanted["metadata"]["labels"].items()


def test_nothing_else_outlives_the_release() -> None:
    kept = {o["kind"] for o in rendered() if KEEP in (o["metadata"].get("annotations") or {})}
    assert kept == {"CustomResourceDefinition"}


def test_a_release_fits_into_its_secret() -> None:
    """Helm keeps chart and manifest together in one Secret, packed as here. A third is left for what is to come."""
    files = [path for path in CHART.rglob("*") if path.is_file()]
    chart = [{"name": str(path), "data": base64.b64encode(path.read_bytes()).decode()} for path in files]
    release = json.dumps({"chart": chart, "manifest": template()}).encode()
    size = len(base64.b64encode(base64.b64encode(gzip.compress(release))))
    assert size < SECRET_LIMIT * 2 / 3, f"{size} bytes"


def test_every_flag_is_one_that_its_program_knows() -> None:
    from virt_api.main import main as virt_api
    from virt_controller.main import main as virt_controller
    from virt_handler.main import main as virt_handler

    commands: dict[str, click.Command] = dict(zip(COMPONENTS, (virt_api, virt_controller, virt_handler)))
    for name, command in commands.items():
        known = {option for parameter in command.params for option in parameter.opts}
        required = {parameter.opts[0] for parameter in command.params if parameter.required}
        for values in ("", "certificates: {provider: cert-manager}\nvirtApi: {guestfsImage: x}"):
            given = {argument.partition("=")[0] for argument in args(name, values)}
            assert given <= known, f"{name} does not know {sorted(given - known)}"
            assert required <= given, f"{name} needs {sorted(required - given)}"


def test_health_is_reached_from_outside() -> None:
    assert "--health-listen=0.0.0.0:8182" in args("virt-controller")
    assert "--health-listen=0.0.0.0:8183" in args("virt-handler")


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_program_is_probed_on_a_port_it_has(name: str) -> None:
    spec = dict(pod_specs())[name]
    container = spec["containers"][0]
    ports = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


def test_only_virt_handler_is_privileged() -> None:
    for name, spec in pod_specs():
        for container in containers(spec):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert container["resources"]["requests"], f"{name}/{container['name']} asks for nothing"
            if name == "virt-handler":
                continue
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            pod = spec["securityContext"]
            assert pod["runAsNonRoot"] is True
            assert pod["runAsUser"] > 1000
            assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
            assert not spec.keys() & {"hostPID", "hostNetwork", "hostIPC"}
            assert all("hostPath" not in volume for volume in spec.get("volumes", []))


def test_roles_join_kubernetes_own_unless_somebody_else_gives_out_rights() -> None:
    def joined(values: str) -> list[str]:
        roles = [obj for obj in rendered(values) if obj["kind"] == "ClusterRole"]
        return [key for role in roles for key in role["metadata"].get("labels", {}) if "/aggregate-to-" in key]

    assert sorted(key.rpartition("-")[2] for key in joined("")) == ["admin", "edit", "view"]
    assert joined("kubevirt: {configuration: {roleAggregationStrategy: AggregateToDefault}}") == joined("")
    assert joined("kubevirt: {configuration: {roleAggregationStrategy: Manual}}") == []


RESERVATIONS = "kubevirt: {configuration: {persistentReservationConfiguration: {enabled: true}}}"


def test_the_helper_for_reservations_runs_where_they_are_allowed_with_one_right() -> None:
    assert "virt-reserve" not in dict(pod_specs())
    spec = one("DaemonSet", "virt-reserve", RESERVATIONS)["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert not spec.keys() & {"hostPID", "hostNetwork", "hostIPC"}
    [container] = spec["containers"]
    security = container["securityContext"]
    assert "privileged" not in security
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"]["drop"] == ["ALL"]
    assert "SYS_ADMIN" not in security["capabilities"]["add"]
    [volume] = spec["volumes"]
    assert names.NODE_SOCKET_RESERVATIONS.startswith(volume["hostPath"]["path"] + "/")
    assert container["args"] == [f"--directory={volume['hostPath']['path']}"]


def test_every_pod_has_an_account_of_its_own() -> None:
    accounts = {name: spec["serviceAccountName"] for name, spec in pod_specs()}
    assert len(set(accounts.values())) == len(accounts) == 4
    for account in accounts.values():
        one("ServiceAccount", account)


def test_keys_stay_in_memory() -> None:
    for name in ("virt-api", "virt-handler"):
        volumes = {volume["name"]: volume for volume in dict(pod_specs())[name]["volumes"]}
        assert volumes["tls"]["emptyDir"]["medium"] == "Memory"


def test_updates_keep_the_service_up_and_the_machines_untouched() -> None:
    for name in ("virt-api", "virt-controller"):
        assert one("Deployment", name)["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
        assert one("PodDisruptionBudget", name)["spec"]["minAvailable"] == 1
    assert all(o["kind"] != "Pod" for o in rendered()), "machines are nobody's release"


def test_virt_api_answers_until_nobody_calls_it_any_more() -> None:
    """And what is left of its time is enough to end what it has begun."""
    spec = dict(pod_specs())["virt-api"]
    wait_s = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert wait_s >= 5
    assert wait_s + 20 < spec.get("terminationGracePeriodSeconds", 30), "the supervisor's own time to stop is 20 s"


def test_a_label_that_changes_with_the_version_restarts_nobody() -> None:
    """A Pod's template must change only with what the Pod is, or each upgrade would restart everything."""
    for name, _ in pod_specs():
        kind = {"virt-handler": "DaemonSet", "virtpod-uninstall-check": "Job"}.get(name, "Deployment")
        metadata = one(kind, name)["spec"]["template"]["metadata"]
        assert __version__ not in json.dumps(metadata)


def test_policies_know_the_account_whatever_the_namespace_is() -> None:
    for name in (
        "virtpod-handler-nodes",
        "virtpod-handler-machines",
        "virtpod-handler-events",
        "virtpod-handler-certificates",
    ):
        policy = one("ValidatingAdmissionPolicy", name, namespace="elsewhere")["spec"]
        assert policy["failurePolicy"] == "Fail"
        account = names.service_account_user(names.SA_HANDLER, "elsewhere")
        assert policy["matchConditions"][0]["expression"] == f'request.userInfo.username == "{account}"'
        assert one("ValidatingAdmissionPolicyBinding", name)["spec"]["policyName"] == name


def test_policies_about_virt_controller_know_its_account() -> None:
    account = names.service_account_user(names.SA_CONTROLLER, "elsewhere")
    for name, relation in (
        ("virtpod-launcher-pods", "!="),
        ("virtpod-controller-nodes", "=="),
        ("virtpod-controller-pods", "=="),
    ):
        policy = one("ValidatingAdmissionPolicy", name, namespace="elsewhere")["spec"]
        assert policy["failurePolicy"] == "Fail"
        assert policy["matchConditions"][0]["expression"] == f'request.userInfo.username {relation} "{account}"'
        binding = one("ValidatingAdmissionPolicyBinding", name)["spec"]
        assert (binding["policyName"], binding["validationActions"]) == (name, ["Deny", "Audit"])


def test_the_port_of_virt_api_is_narrowed_to_who_is_named() -> None:
    peers = [{"ipBlock": {"cidr": "10.1.2.3/32"}}]
    scraper = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]

    def sources(**policies: object) -> object:
        policy = one("NetworkPolicy", "virtpod-virt-api", values=json.dumps({"networkPolicies": policies}))
        (rule,) = [rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == 8443]
        return rule.get("from")

    assert sources() is None, "nobody said where the API server is"
    assert sources(metricsFrom=scraper) is None
    assert sources(apiServerFrom=peers) == peers
    assert sources(apiServerFrom=peers, metricsFrom=scraper) == peers + scraper


def test_whom_clients_trust_outside_comes_to_virt_controller_as_a_file() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n"
    values = json.dumps({"virtController": {"exportURL": "https://exports.example.org", "exportCA": pem}})
    (option,) = [arg for arg in args("virt-controller", values) if arg.startswith("--export-ca=")]
    directory, _, name = option.removeprefix("--export-ca=").rpartition("/")
    spec = one("Deployment", "virt-controller", values)["spec"]["template"]["spec"]
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == directory]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    assert one("ConfigMap", volume["configMap"]["name"], values)["data"][name] == pem
    assert not [arg for arg in args("virt-controller") if arg.startswith("--export-")]


def test_the_policy_lets_every_label_pass_that_virt_handler_sets() -> None:
    from virt_handler.node.labels import LABEL_VIRTUALIZATION, OWNED_PREFIXES

    text = json.dumps(one("ValidatingAdmissionPolicy", "virtpod-handler-nodes"))
    pattern = re.search(r'k\.matches\(\\"([^"]+?)\\"\)', text)
    assert pattern is not None
    own = (names.LABEL_SCHEDULABLE, names.LABEL_CPU_MANAGER_NEW, names.ANNOTATION_HEARTBEAT)
    ours = (*OWNED_PREFIXES, LABEL_VIRTUALIZATION, names.ANNOTATION_HANDLER_ADDRESS, *own)
    for key in ours:
        assert re.match(pattern[1], key), key
    foreign = (
        "node-role.kubernetes.io/control-plane",
        "kubevirt.io.evil.org/x",
        "notkubevirt.io/x",
        "kubernetes.io/os",
    )
    assert not [key for key in foreign if re.match(pattern[1], key)]


def test_webhooks_block_nothing_but_our_kinds_and_launchers() -> None:
    for kind, name in (("Mutating", "virt-api-mutator"), ("Validating", "virt-api-validator")):
        for hook in one(f"{kind}WebhookConfiguration", name)["webhooks"]:
            assert 1 <= hook["timeoutSeconds"] <= 10
            groups = {group for rule in hook["rules"] for group in rule["apiGroups"]}
            if groups == {""}:
                assert hook["name"] == "pod-evictions-validator.kubevirt.io"
                assert 'startsWith("virt-launcher' in hook["matchConditions"][0]["expression"]
                assert "kube-system" in json.dumps(hook["namespaceSelector"])
            else:
                assert all(group.endswith("kubevirt.io") for group in groups)
