"""What a client may ask for as an answer: tables, metadata alone, YAML, protobuf."""

from __future__ import annotations

from contract.cases.lists import gadget
from contract.table import case
from contract.talk import GADGETS, MAPS, PARTIAL, PARTIAL_LIST, PODS, TABLE, Talk

PROTOBUF = "application/vnd.kubernetes.protobuf"


def _gadgets(t: Talk) -> None:
    t.given(GADGETS, gadget("a", tags=["x", "y"], on=True))
    t.given(GADGETS, gadget("b"))
    ready = {"status": {"phase": "Up", "conditions": [{"type": "Ready", "status": "True"}]}}
    t.send("PATCH", f"{GADGETS}/a/status", ready, content_type="application/merge-patch+json")


@case()
def tables(t: Talk) -> None:
    _gadgets(t)
    t.get(GADGETS, accept=TABLE)
    t.get(f"{GADGETS}/a", accept=TABLE)
    t.get(f"{GADGETS}?includeObject=Object", accept=TABLE, pick=lambda body: body["rows"])
    t.get(f"{GADGETS}?includeObject=None", accept=TABLE, pick=lambda body: body["rows"])
    t.get(f"{GADGETS}?includeObject=Some", accept=TABLE)
    t.get(f"{GADGETS}?limit=1", accept=TABLE, pick=lambda body: body["metadata"])
    t.get(f"{GADGETS}/none", accept=TABLE)
    t.get(f"{GADGETS}?labelSelector=no", accept=TABLE)


@case()
def as_kubectl_asks(t: Talk) -> None:
    _gadgets(t)
    accept = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    t.get(GADGETS, accept=accept, pick=lambda body: [body["kind"], body["apiVersion"]])
    t.get(GADGETS, accept="application/json;as=Table;v=v1beta1;g=meta.k8s.io", pick=lambda body: body["apiVersion"])


@case()
def written_objects_as_tables(t: Talk) -> None:
    t.create(GADGETS, gadget("a"), accept=TABLE)
    t.patch(f"{GADGETS}/a", {"spec": {"size": 3}}, accept=TABLE)
    t.delete(f"{GADGETS}/a", accept=TABLE)


@case()
def tables_of_pods(t: Talk) -> None:
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "schedulerName": "nobody",
        "automountServiceAccountToken": False,
    }
    t.given(PODS, {"metadata": {"name": "p"}, "spec": spec})
    t.get(PODS, accept=TABLE)
    t.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})


@case()
def metadata_alone(t: Talk) -> None:
    _gadgets(t)
    t.get(GADGETS, accept=PARTIAL_LIST)
    t.get(f"{GADGETS}/a", accept=PARTIAL)
    t.patch(f"{GADGETS}/a", {"metadata": {"labels": {"a": "b"}}}, accept=PARTIAL)
    t.given(MAPS, {"metadata": {"name": "a"}})
    t.get(f"{MAPS}/a", accept=PARTIAL)
    t.get(f"{MAPS}/a", accept=PARTIAL_LIST)
    t.get(MAPS, accept=PARTIAL)


@case()
def yaml(t: Talk) -> None:
    t.given(MAPS, {"metadata": {"name": "a"}, "data": {"k": "v: w"}})
    t.get(f"{MAPS}/a", accept="application/yaml")
    t.given(GADGETS, gadget("a"))
    t.get(f"{GADGETS}/a", accept="application/yaml")
    t.get(f"{GADGETS}/none", accept="application/yaml")


@case()
def any_form(t: Talk) -> None:
    t.given(MAPS, {"metadata": {"name": "a"}})
    for accept in ("*/*", "text/html,*/*", "application/json;q=0.5", "application/json;stream=watch"):
        t.get(f"{MAPS}/a", accept=accept, pick=lambda body: body["kind"])


@case(words=False)
def forms_that_are_not_served(t: Talk) -> None:
    t.given(MAPS, {"metadata": {"name": "a"}})
    t.given(GADGETS, gadget("a"))
    t.get(f"{MAPS}/a", accept="text/plain")
    t.get(f"{MAPS}/a", accept="application/json;as=Chair;v=v1;g=meta.k8s.io")
    t.get(f"{MAPS}/a", accept="image/png")
    t.get(f"{GADGETS}/a", accept="application/cbor")


@case()
def protobuf_or_json(t: Talk) -> None:
    """As typed clients ask for custom resources."""
    t.given(GADGETS, gadget("a"))
    t.get(f"{GADGETS}/a", accept=f"{PROTOBUF},application/json", pick=lambda body: body["kind"])


@case()
def protobuf_bodies(t: Talk) -> None:
    """A ConfigMap as typed clients send it: the envelope, the kind, the object."""
    metadata = b"\x0a\x01a"
    entry = b"\x0a\x01k\x12\x01v"
    raw = b"\x0a" + bytes([len(metadata)]) + metadata + b"\x12" + bytes([len(entry)]) + entry
    kind = b"\x0a\x02v1\x12\x09ConfigMap"
    body = b"k8s\x00" + b"\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes([len(raw)]) + raw
    t.create(MAPS, body, content_type=PROTOBUF)


@case()
def protobuf_answers(t: Talk) -> None:
    """Built-in kinds come as protobuf to whoever takes nothing else."""
    t.given(MAPS, {"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}, "binaryData": {"b": "AAEC"}})
    t.get(f"{MAPS}/a", accept=PROTOBUF)
    t.get(f"{MAPS}/none", accept=PROTOBUF)
    place = "/api/v1/namespaces/{ns}/services"
    ports = [{"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 81}]
    t.given(place, {"metadata": {"name": "s"}, "spec": {"ports": ports, "clusterIP": "None", "selector": {"x": "y"}}})
    t.get(f"{place}/s", accept=PROTOBUF)
    t.given(GADGETS, gadget("a"))
    t.get(f"{GADGETS}/a", accept=PROTOBUF)


@case()
def protobuf_answers_of_pods(t: Talk) -> None:
    container = {
        "name": "c",
        "image": "i",
        "resources": {"limits": {"memory": "64Mi"}},
        "ports": [{"containerPort": 80}],
    }
    spec = {"containers": [container], "schedulerName": "nobody", "automountServiceAccountToken": False}
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}]
    t.given(PODS, {"metadata": {"name": "p"}, "spec": spec | {"volumes": volumes}})
    t.get(f"{PODS}/p", accept=PROTOBUF)
    t.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})


@case()
def pretty(t: Talk) -> None:
    t.given(MAPS, {"metadata": {"name": "a"}})
    t.get(f"{MAPS}/a?pretty=true")
