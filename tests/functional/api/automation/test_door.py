"""The door itself: TLS, tokens, reflection, health, and a client that knows nothing but what reflection tells."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from framework.certs import CertAuthority
from functional.api.automation.rig import COLLECTION, AutomationRig, document
from functional.api.rig import TOKEN
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from virt_client import Client, Unauthenticated, Unavailable
from virt_protos.automation.v1 import automation_pb2 as pb
from virt_protos.automation.v1 import automation_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["Automation"]


def channel(auto: AutomationRig, token: str = "") -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(auto.ca.pem)
    if token:
        call = grpc.access_token_call_credentials(token)
        credentials = grpc.composite_channel_credentials(credentials, call)
    return grpc.secure_channel(f"127.0.0.1:{auto.port}", credentials)


METADATA: list[Any] = [
    [],
    [("authorization", "Bearer ")],
    [("authorization", "Basic Z29vZA==")],
    [("authorization", TOKEN)],
    [("authorization", "Bearer bad")],
    [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer bad")],
    [("authorization", "Bearer a b")],
    [("x-remote-user", "admin"), ("x-remote-group", "system:masters")],
]


@pytest.mark.parametrize("metadata", METADATA)
def test_every_call_needs_a_good_token(auto: AutomationRig, metadata: Any) -> None:
    """Each method of the service, and reflection as well."""
    reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    methods = [(f"/{SERVICE.full_name}/{m.name}", m.client_streaming) for m in SERVICE.methods] + [(reflection, True)]
    with channel(auto) as plain:
        for method, streams in methods:
            call = plain.stream_stream(method) if streams else plain.unary_stream(method)
            with pytest.raises(grpc.RpcError) as refused:
                list(call(iter([b""]) if streams else b"", metadata=metadata, timeout=10))
            answer: Any = refused.value
            assert answer.code() is grpc.StatusCode.UNAUTHENTICATED, method
    assert not auto.api.asked
    assert not auto.node.commands


def test_a_wrong_token_through_the_client(auto: AutomationRig) -> None:
    with auto.client("bad") as client, pytest.raises(Unauthenticated, match="not valid"):
        client.version()


def test_the_server_must_prove_itself(auto: AutomationRig) -> None:
    other = CertAuthority("other").pem
    with (
        Client(f"127.0.0.1:{auto.port}", TOKEN, ca_pem=other, timeout_s=5) as client,
        pytest.raises((Unavailable, Exception)) as refused,
    ):
        client.version()
    assert isinstance(refused.value, Unavailable)
    assert not auto.kube.tokens


def test_no_plain_text(auto: AutomationRig) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{auto.port}") as plain:
        stub: Any = automation_pb2_grpc.AutomationStub(plain)
        with pytest.raises(grpc.RpcError):
            stub.GetVersion(pb.GetVersionRequest(), metadata=[("authorization", f"Bearer {TOKEN}")], timeout=3)
    assert not auto.kube.tokens


def test_health_needs_no_token(auto: AutomationRig) -> None:
    with channel(auto) as plain:
        stub: Any = health_pb2_grpc.HealthStub(plain)
        for name in ("", SERVICE.full_name):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_client_that_knows_only_what_reflection_tells(auto: AutomationRig) -> None:
    """As grpcurl does it: services, descriptors and messages all come over the wire."""
    auto.answer("GET", f"{COLLECTION}/vm1", document())
    with channel(auto, TOKEN) as open_:
        database = ProtoReflectionDescriptorDatabase(open_)
        assert SERVICE.full_name in database.get_services()
        pool = DescriptorPool(database)
        service = pool.FindServiceByName("virtpod.automation.v1.Automation")
        method = service.FindMethodByName("Get")
        request = GetMessageClass(method.input_type)()
        request.ref.kind = (
            pool.FindEnumTypeByName("virtpod.automation.v1.Kind").values_by_name["KIND_VIRTUAL_MACHINE_INSTANCE"].number
        )
        request.ref.name = "vm1"
        answer_class = GetMessageClass(method.output_type)
        call = open_.unary_unary(
            f"/{service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer_class.FromString,
        )
        answer: Any = call(request, timeout=10)
    assert (answer.name, answer.phase) == ("vm1", "Running")
    assert json.loads(answer.json)["metadata"]["uid"] == "uid-vm1"


def test_a_renewed_certificate_is_taken_up(auto: AutomationRig) -> None:
    """New connections are served with the certificate that lies there now."""
    with auto.client() as client:
        assert client.version()
    newer = CertAuthority("newer")
    newer.issue("virt-api", "127.0.0.1").write(auto.serving)
    with Client(f"127.0.0.1:{auto.port}", TOKEN, ca_pem=newer.pem) as client:
        assert client.version()
