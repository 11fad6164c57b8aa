"""virt-api's port, when everybody who can reach it means no good: the real process, real connections."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.chart import pod_specs
from framework.flood import Caller, Flood, is_open, memory_kib
from framework.grpcflood import health_watches
from framework.waiting import eventually
from functional.api.process_rig import Process, virt_api

from tests.unit.api.reviews import vmi
from virt_api.authn import API_SERVER
from virt_core import manifests
from virt_core.apis.quantity import parse_bytes

MUTATE = "/virtualmachineinstances-mutate"
VALIDATE = "/virtualmachineinstances-validate-create"
#: Longer than any limit of virt-api's, with room for a busy machine.
PATIENCE_S = 60.0


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Process]:
    with virt_api(tmp_path) as process:
        yield process


def review(obj: dict[str, Any]) -> bytes:
    request = {
        "uid": "r1",
        "kind": {"group": "kubevirt.io", "version": "v1", "kind": obj["kind"]},
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": obj,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def admitted(api: Process, caller: Caller) -> bool:
    status, answer = caller.ask("POST", api.hook(MUTATE), review(vmi()))
    return status == 200 and json.loads(answer)["response"]["allowed"] is True


def webhook_timeout_s() -> float:
    """The API server gives up after this long."""
    hooks = [hook for document in manifests.load("webhooks.yaml") for hook in document["webhooks"]]
    return float(min(hook["timeoutSeconds"] for hook in hooks))


def memory_limit_kib() -> int:
    """What the chart lets virt-api have."""
    spec = dict(pod_specs())["virt-api"]
    return parse_bytes(spec["containers"][0]["resources"]["limits"]["memory"]) >> 10


def test_a_flood_stops_nobody_and_fits_the_charts_memory(api: Process) -> None:
    """200 half-sent headers, 60 unfinished bodies of strangers and 60 that are read, each as long as can
    be, 512 health streams of the automation, and reviews all the while; all from one address, which is also that of the
    API server."""
    caller = api.caller(webhook_timeout_s())
    streams = health_watches(api.automation, api.ca.pem, 512)
    with Flood(api.port, api.tls) as flood, Flood(api.port, api.server_tls) as inside, streams:
        flood.half_sent_headers(200)
        assert admitted(api, caller)
        flood.unfinished_bodies(60, api.hook(MUTATE), 4 << 20)
        inside.unfinished_bodies(60, api.hook(MUTATE), (4 << 20) - 1, API_SERVER)
        assert all(admitted(api, caller) for _ in range(200))
        assert caller.ask("GET", "/healthz")[0] == 200
        assert memory_kib(api.pid) < memory_limit_kib()
    caller.close()


def test_unfinished_bodies_do_not_fill_the_memory(api: Process) -> None:
    """Far more is announced and sent than is ever held: 60 bodies of 4 MiB would be 240 MiB. Nobody else's are read."""
    before = memory_kib(api.pid)
    with Flood(api.port, api.server_tls) as flood:
        flood.unfinished_bodies(60, api.hook(MUTATE), (4 << 20) - 1, API_SERVER)
        grown = memory_kib(api.pid) - before
    assert grown < 120 << 10, f"grew by {grown >> 10} MiB"


def test_half_sent_headers_are_not_waited_for(api: Process) -> None:
    with Flood(api.port, api.tls) as flood:
        flood.half_sent_headers(150)
        eventually(lambda: flood.open_count() == 0, within_s=PATIENCE_S, every_s=0.5)


def test_unfinished_bodies_and_silent_connections_are_not_waited_for(api: Process) -> None:
    with Flood(api.port, api.tls) as flood:
        flood.unfinished_bodies(5, api.hook(MUTATE), 100)
        for _ in range(5):
            flood.say(b"")
        eventually(lambda: flood.open_count() == 0, within_s=PATIENCE_S, every_s=0.5)


def test_headers_that_never_end_are_cut_off(api: Process) -> None:
    with Flood(api.port, api.tls) as flood:
        line = b"X-More: " + b"x" * 4000 + b"\r\n"
        connection = flood.say(b"GET /healthz HTTP/1.1\r\nHost: virt-api\r\n" + line * 100)
        eventually(lambda: not is_open(connection), within_s=5.0)


def test_a_crowd_from_one_address_leaves_room_for_others_and_for_newcomers(api: Process) -> None:
    old = api.caller(source="127.0.0.9")
    assert admitted(api, old)
    with Flood(api.port, api.tls, source="127.0.0.2") as flood:
        for _ in range(1300):
            flood.say(b"")
        assert flood.open_count() < 1000
        for source in ("127.0.0.2", "127.0.0.3"):
            caller = api.caller(source=source)
            assert admitted(api, caller)
            caller.close()
        assert admitted(api, old), "who has been served keeps its connection"
    old.close()


def test_a_body_beyond_the_limit_is_refused_unread(api: Process) -> None:
    caller = api.caller()
    status, answer = caller.ask("POST", api.hook(MUTATE), b" " * (5 << 20))
    assert (status, "4194304" in json.loads(answer)["message"]) == (413, True)
    caller.close()


def crossed_lists(count: int) -> dict[str, Any]:
    """Two long lists that a rule once compared entry by entry."""
    obj = vmi()
    method = {"noCloud": {}}
    key = {"source": {"secret": {"secretName": "s"}}, "propagationMethod": method}
    obj["spec"]["accessCredentials"] = [{"sshPublicKey": key}] * count
    obj["spec"]["volumes"] = [{"name": "v", "emptyDisk": {"capacity": "1Gi"}}] * count
    return obj


def test_health_is_answered_while_a_giant_is_reviewed(api: Process) -> None:
    """Eight reviews at once, each of a megabyte; the review that one VMI needs comes through as well."""
    giant = review(crossed_lists(8000))
    assert 1 << 20 <= len(giant) < 4 << 20
    answers: list[tuple[int, bytes]] = []

    def send() -> None:
        caller = api.caller(PATIENCE_S)
        answers.append(caller.ask("POST", api.hook(VALIDATE), giant))
        caller.close()

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    caller = api.caller(webhook_timeout_s() / 2)
    while any(thread.is_alive() for thread in threads):
        assert caller.ask("GET", "/livez")[0] == 200
        assert caller.ask("GET", "/readyz")[0] == 200
        assert admitted(api, caller)
    caller.close()
    for thread in threads:
        thread.join()
    refusals = [json.loads(answer)["response"]["status"] for _, answer in answers]
    assert [status["code"] for status in refusals] == [422] * 8
    assert {status["message"] for status in refusals} == {"spec.volumes: has 8000 entries; at most 500 can be given"}
