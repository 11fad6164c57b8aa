"""Certificates that live for seconds, and programs that never notice: under constant admission and console traffic,
with two new CAs and many new certificates, no request is lost and no stream breaks."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from framework.certs import CertAuthority
from framework.waiting import eventually, running
from functional.api.rotation_rig import SECRETS, SERVICE, Rig, Trust, connected, rotation_rig
from grpc_health.v1 import health_pb2, health_pb2_grpc

from virt_api.subresources.discovery import REVIEWS

CONSOLE = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm1/console"
BEARER = {"Authorization": "Bearer good"}
LIFETIMES = ("--ca-lifetime=24s", "--leaf-lifetime=12s")
NOBODY_CHECKED = ssl._create_unverified_context()


class Traffic:
    """Calls one thing again and again; keeps count, and every failure."""

    def __init__(self, name: str, call: Callable[[], object], pause_s: float) -> None:
        self.name, self._call, self._pause_s = name, call, pause_s
        self.done = 0
        self.failures: list[str] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._pause_s):
            try:
                self._call()
                self.done += 1
            except Exception as error:
                self.failures.append(f"{self.name} after {self.done}: {error!r}")

    def goes_on(self, times: int) -> None:
        done = self.done
        eventually(lambda: self.done > done + times or self.failures, within_s=30)
        assert self.failures == []


class Clients:
    """Each call a new connection, trusting what was injected a moment ago."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.certificates: set[bytes] = set()
        self.review = json.dumps(
            {
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "request": {
                    "uid": "u1",
                    "operation": "CREATE",
                    "kind": {"group": "kubevirt.io", "version": "v1", "kind": "VirtualMachineInstance"},
                    "resource": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachineinstances"},
                    "namespace": "default",
                    "name": "x",
                    "object": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": {}},
                },
            }
        )

    def admit(self) -> None:
        with connected(self.rig.port, self.rig.api_server()) as connection:
            self.certificates.add(connection.sock.getpeercert(binary_form=True))
            self._review(connection)

    def _review(self, connection: Any) -> None:
        headers = {"Content-Type": "application/json", "X-Remote-User": "system:apiserver"}
        connection.request("POST", f"{REVIEWS}/virtualmachineinstances-mutate", self.review, headers)
        answer = json.loads(connection.getresponse().read())
        assert answer["response"]["uid"] == "u1", answer

    def automation(self) -> None:
        target = [("grpc.ssl_target_name_override", SERVICE), ("grpc.use_local_subchannel_pool", 1)]
        credentials = grpc.ssl_channel_credentials(self.rig.trust.pem())
        with grpc.secure_channel(f"127.0.0.1:{self.rig.automation_port}", credentials, target) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            call = grpc.access_token_call_credentials("good")
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=10, credentials=call)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    def console(self) -> None:
        asyncio.run(asyncio.wait_for(self._talk(lambda rounds: rounds < 1), 20))

    async def _talk(self, more: Callable[[int], bool]) -> int:
        """Says something, hears it back; as long as `more` says so."""
        rounds = 0
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Here())) as session,
            session.ws_connect(
                f"https://{SERVICE}:{self.rig.port}{CONSOLE}", ssl=self.rig.trust.context(), headers=BEARER
            ) as ws,
        ):
            while more(rounds):
                await ws.send_bytes(b"%d" % rounds)
                assert await ws.receive_bytes(timeout=10) == b"%d" % rounds
                rounds += 1
                await asyncio.sleep(0.05)
        return rounds

    def long_console(self, stop: threading.Event) -> int:
        return asyncio.run(self._talk(lambda _: not stop.is_set()))

    def keep_alive(self, stop: threading.Event) -> int:
        """One connection for all, as an API server keeps it."""
        done = 0
        with connected(self.rig.port, self.rig.api_server()) as connection:
            while not stop.wait(0.05):
                self._review(connection)
                done += 1
        return done


class Here(AbstractResolver):
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None: ...


def ready(rig: Rig) -> tuple[int, str]:
    try:
        return rig.get("/readyz", NOBODY_CHECKED)
    except OSError as error:
        return 0, str(error)


def rotated_twice(trust: Trust) -> bool:
    """[a] [a b] [b] [b c] [c]"""
    return sum(len(bundle) == 1 for bundle in trust.history()) >= 3


@pytest.mark.timeout(240)
def test_no_request_is_lost_while_everything_rotates(tmp_path: Path) -> None:
    with rotation_rig(tmp_path) as rig, ExitStack() as stack:
        stack.enter_context(rig.virt_api())
        eventually(lambda: "waiting for Secret virtpod/virt-api-serving" in ready(rig)[1], within_s=30, every_s=0.1)
        assert rig.get("/livez", NOBODY_CHECKED) == (200, "ok\n")
        stack.enter_context(rig.controller(*LIFETIMES))
        rig.serve_node(stack)
        eventually(lambda: ready(rig)[0] == 200 and rig.trust.history(), within_s=30, every_s=0.1)
        eventually(lambda: rig.get("/healthz", rig.trust.context()), within_s=5)

        clients = Clients(rig)
        traffic = [
            Traffic("admission", clients.admit, 0.05),
            Traffic("console", clients.console, 0.2),
            Traffic("automation", clients.automation, 0.2),
        ]
        held: dict[str, int] = {}

        def hold(name: str, call: Callable[[threading.Event], int]) -> Callable[[threading.Event], None]:
            return lambda stop: held.__setitem__(name, call(stop))

        streams = [hold("console", clients.long_console), hold("admission", clients.keep_alive)]
        with running(*(each.run for each in traffic), *streams):
            eventually(lambda: rotated_twice(rig.trust), within_s=150, every_s=0.1)
        assert [failure for each in traffic for failure in each.failures] == []
        assert all(each.done > 30 for each in traffic), {each.name: each.done for each in traffic}
        assert min(held.values()) > 100, held
        assert len(clients.certificates) >= 4
        metrics = rig.get("/metrics", rig.trust.context(), BEARER)[1]
        (line,) = [
            line
            for line in metrics.splitlines()
            if 'expiration_timestamp_seconds{certificate="virt-api-serving"' in line
        ]
        assert float(line.split()[-1]) > time.time()
        assert "PRIVATE" not in rig.log("virt_api") + rig.log("virt_controller")


def test_a_deleted_secret_and_a_deleted_ca_lose_no_request(tmp_path: Path) -> None:
    with rotation_rig(tmp_path) as rig, ExitStack() as stack:
        stack.enter_context(rig.controller("--ca-lifetime=100s", "--leaf-lifetime=60s"))
        stack.enter_context(rig.virt_api())
        rig.serve_node(stack)
        eventually(lambda: ready(rig)[0] == 200 and rig.trust.history(), within_s=30, every_s=0.1)
        clients = Clients(rig)
        eventually(lambda: clients.admit() or True, within_s=5)
        traffic = [Traffic("admission", clients.admit, 0.05), Traffic("console", clients.console, 0.1)]
        with running(*(each.run for each in traffic)):
            for name in ("virt-api-serving", "virt-api-client", "virtpod-ca"):
                lose(rig, name)
                for each in traffic:
                    each.goes_on(10)
        assert [failure for each in traffic for failure in each.failures] == []
        assert len(rig.trust.history()[-1]) == 2


def lose(rig: Rig, name: str) -> None:
    """Deletes a Secret, and waits until there is another one."""
    path = f"{SECRETS}/{name}"
    uid = rig.kube.remove(path)["metadata"]["uid"]
    eventually(lambda: path in rig.kube.objects and rig.kube.objects[path]["metadata"]["uid"] != uid, within_s=20)


def test_a_new_ca_of_the_aggregation_layer_is_followed(tmp_path: Path) -> None:
    """The front proxy is believed by the certificate of the day; that of yesterday's CA opens nothing."""
    with rotation_rig(tmp_path) as rig, ExitStack() as stack:
        stack.enter_context(rig.controller())
        stack.enter_context(rig.virt_api())
        eventually(lambda: ready(rig)[0] == 200 and rig.trust.history(), within_s=30, every_s=0.1)
        time_to_trust = lambda ca, name="aggregator": as_proxy(rig, ca, name)  # noqa: E731
        eventually(lambda: time_to_trust(rig.proxy_ca) == 200, within_s=10, every_s=0.1)
        assert time_to_trust(rig.proxy_ca, "somebody") == 401
        new = CertAuthority("new front proxy")
        assert time_to_trust(new) == 0
        rig.front_proxy(new)
        eventually(lambda: time_to_trust(new) == 200, within_s=10, every_s=0.1)
        assert time_to_trust(rig.proxy_ca) == 0


def as_proxy(rig: Rig, ca: CertAuthority, name: str) -> int:
    """The status that the aggregation layer gets for a user; 0: no connection."""
    context = rig.trust.context()
    where = ca.issue(name).write(rig.directory / f"proxy-{name}")
    context.load_cert_chain(where / "tls.crt", where / "tls.key")
    try:
        return rig.get("/apis/subresources.kubevirt.io/v1", context, {"X-Remote-User": "alice"})[0]
    except OSError:
        return 0
