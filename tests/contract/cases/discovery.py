"""What a server tells about itself, as far as clients read it."""

from __future__ import annotations

from typing import Any

from contract.table import case
from contract.talk import GROUP, Talk

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
#: Kinds that both servers must offer alike; the real one has more.
SHARED = (
    "bindings",
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
    "services",
)
SUBRESOURCES = (
    "namespaces/status",
    "namespaces/finalize",
    "nodes/status",
    "pods/status",
    "pods/log",
    "pods/exec",
    "pods/attach",
    "pods/portforward",
    "pods/binding",
    "pods/eviction",
    "serviceaccounts/token",
    "services/status",
    "persistentvolumes/status",
    "persistentvolumeclaims/status",
)


def _resources(names: list[str]) -> Any:
    def pick(body: Any) -> Any:
        found = [resource for resource in body["resources"] if resource["name"] in names]
        return {**body, "resources": sorted(found, key=lambda r: r["name"])}

    return pick


@case()
def core_versions(t: Talk) -> None:
    t.get("/api")


@case()
def core_resources(t: Talk) -> None:
    wanted = [name for name in SHARED if name not in ("bindings", "endpoints", "podtemplates")]
    t.get("/api/v1", pick=_resources([*wanted, *SUBRESOURCES]))


@case()
def groups(t: Talk) -> None:
    t.get("/apis", pick=lambda body: [body["kind"], [g for g in body["groups"] if g["name"] == GROUP]])
    t.get(f"/apis/{GROUP}")
    t.get(f"/apis/{GROUP}/v1", pick=_resources(["gadgets", "gadgets/status", "gadgets/scale", "parts"]))
    t.get("/apis/nowhere.virtpod.test")
    t.get("/apis/nowhere.virtpod.test/v1")
    t.get(f"/apis/{GROUP}/v7")


@case()
def groups_that_are_built_in(t: Talk) -> None:
    for group, names in {
        "apps/v1": ["controllerrevisions"],
        "policy/v1": ["poddisruptionbudgets", "poddisruptionbudgets/status"],
        "coordination.k8s.io/v1": ["leases"],
        "discovery.k8s.io/v1": ["endpointslices"],
        "events.k8s.io/v1": ["events"],
        "networking.k8s.io/v1": ["networkpolicies"],
        "storage.k8s.io/v1": ["storageclasses"],
        "scheduling.k8s.io/v1": ["priorityclasses"],
        "rbac.authorization.k8s.io/v1": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
        "apiextensions.k8s.io/v1": ["customresourcedefinitions", "customresourcedefinitions/status"],
        "apiregistration.k8s.io/v1": ["apiservices", "apiservices/status"],
        "admissionregistration.k8s.io/v1": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "authentication.k8s.io/v1": ["tokenreviews", "selfsubjectreviews"],
        "authorization.k8s.io/v1": [
            "subjectaccessreviews",
            "selfsubjectaccessreviews",
            "localsubjectaccessreviews",
            "selfsubjectrulesreviews",
        ],
    }.items():
        t.get(f"/apis/{group}", pick=_resources(names))


@case()
def in_one_document(t: Talk) -> None:
    def ours(body: Any) -> Any:
        return {**body, "items": [item for item in body["items"] if item["metadata"]["name"] == GROUP]}

    t.get("/apis", accept=AGGREGATED, pick=ours)
    both = f"{AGGREGATED},{AGGREGATED.replace('v=v2', 'v=v2beta1')},application/json"
    t.get("/apis", accept=both, pick=ours)
    t.get("/api", accept=AGGREGATED, pick=_core)


def _core(body: Any) -> Any:
    found = [r for r in body["items"][0]["versions"][0]["resources"] if r["resource"] in ("configmaps", "secrets")]
    return {
        "kind": body["kind"],
        "apiVersion": body["apiVersion"],
        "resources": sorted(found, key=lambda r: r["resource"]),
    }


@case()
def version(t: Talk) -> None:
    t.get("/version", pick=lambda body: [body["major"], body["minor"], body["platform"], sorted(body)])


@case()
def health(t: Talk) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/healthz/ping", "/livez/ping"):
        t.get(path)
    t.get("/readyz?verbose", pick=lambda body: body.splitlines()[-1])


def _published(t: Talk) -> None:
    """The real server makes these documents in its own time."""
    t.wait("/openapi/v3", lambda reply: f"apis/{GROUP}/v1" in reply.body["paths"], within_s=60)
    t.wait(f"/openapi/v3/apis/{GROUP}/v1", lambda reply: "Gadget" in str(reply.body), within_s=60)


@case()
def openapi(t: Talk) -> None:
    _published(t)
    t.get("/openapi/v3", pick=lambda body: {k: v for k, v in body["paths"].items() if GROUP in k})
    t.get("/openapi/v3/apis/nowhere.virtpod.test/v1")

    def shape(body: Any) -> Any:
        name = "test.virtpod.contract.v1.Gadget"
        schema = body["components"]["schemas"][name]
        return {
            "paths": sorted(body["paths"]),
            "gvk": schema["x-kubernetes-group-version-kind"],
            "spec": schema["properties"]["spec"]["properties"],
            "metadata": sorted(schema["properties"]["metadata"]),
        }

    t.get(f"/openapi/v3/apis/{GROUP}/v1", pick=shape)


@case()
def openapi_of_patches(t: Talk) -> None:
    """kubectl looks here for whether a server checks unknown fields."""

    def shape(body: Any) -> Any:
        patch = body["paths"][f"/apis/{GROUP}/v1/namespaces/{{namespace}}/gadgets/{{name}}"]["patch"]
        return {
            "gvk": patch["x-kubernetes-group-version-kind"],
            "action": patch["x-kubernetes-action"],
            "parameters": sorted(p["name"] for p in patch["parameters"] if "name" in p),
        }

    _published(t)
    t.get(f"/openapi/v3/apis/{GROUP}/v1", pick=shape)


@case()
def old_openapi(t: Talk) -> None:
    _published(t)
    t.wait("/openapi/v2", lambda reply: "virtpod.contract" in str(reply.body)[:10_000_000], within_s=60)

    def shape(body: Any) -> Any:
        return [body["swagger"], any("Gadget" in name for name in body["definitions"])]

    t.get("/openapi/v2", pick=shape)


@case()
def the_root(t: Talk) -> None:
    wanted = [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/apis/apps",
        "/apis/apps/v1",
        f"/apis/{GROUP}",
        f"/apis/{GROUP}/v1",
    ]
    wanted += ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
    t.get("/", pick=lambda body: [path for path in wanted if path in body["paths"]])
