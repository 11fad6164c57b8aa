"""Nobody without a token, and nobody with one, keeps others from the gRPC door."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from framework.grpcflood import half_sent, health_watches, idle_connections, is_open
from framework.waiting import eventually
from functional.api.automation.rig import AutomationRig
from functional.api.rig import OTHER_TOKEN, TOKEN
from grpc_health.v1 import health_pb2, health_pb2_grpc

from virt_api.automation.front import CONNECTIONS
from virt_api.automation.shares import CALLERS, HEALTH_WATCHES
from virt_client import AutomationError
from virt_protos.automation.v1 import automation_pb2 as pb

GET_VERSION = f"/{pb.DESCRIPTOR.services_by_name['Automation'].full_name}/GetVersion"
STREAMS = 512


def address(auto: AutomationRig) -> str:
    return f"127.0.0.1:{auto.port}"


def health(auto: AutomationRig) -> Any:
    with grpc.secure_channel(address(auto), grpc.ssl_channel_credentials(auto.ca.pem)) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        return stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status


def test_health_streams_without_a_token_keep_nobody_out(auto: AutomationRig) -> None:
    with health_watches(address(auto), auto.ca.pem, STREAMS) as flood:
        with auto.client() as client:
            assert client.version()
        assert health(auto) == health_pb2.HealthCheckResponse.SERVING
        eventually(lambda: flood.held() <= HEALTH_WATCHES.each)


def test_idle_connections_of_one_address_keep_nobody_else_out(auto: AutomationRig) -> None:
    """A thousand of them, before any TLS: those from another address find the door open."""
    with idle_connections("127.0.0.1", auto.port, 1000, source="127.0.0.2") as held:
        eventually(lambda: sum(is_open(each) for each in held) <= CONNECTIONS.each)
        with auto.client() as client:
            assert client.version()


def test_a_health_stream_is_still_served_as_long_as_it_likes(auto: AutomationRig) -> None:
    with health_watches(address(auto), auto.ca.pem, 1) as flood:
        assert flood.held() == 1


def test_calls_without_a_message_or_token_keep_nobody_out(auto: AutomationRig) -> None:
    with half_sent(address(auto), auto.ca.pem, GET_VERSION, STREAMS) as flood:
        eventually(lambda: flood.held() == 0, within_s=30)
        with auto.client() as client:
            assert client.version()


def test_one_caller_leaves_room_for_others(auto: AutomationRig) -> None:
    """With a good token, and calls whose message never comes."""
    with half_sent(address(auto), auto.ca.pem, GET_VERSION, STREAMS, [("authorization", f"Bearer {TOKEN}")]) as flood:
        eventually(lambda: flood.held() == CALLERS.each, within_s=30)
        with auto.client() as client, pytest.raises(AutomationError, match="bob has") as refused:
            client.version()
        assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        with auto.client(OTHER_TOKEN) as client:
            assert client.version()
    with auto.client() as client:
        assert eventually(client.version)
