"""Admission while the port of virt-api is attacked, beside admission in peace: the real process, a fake cluster."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from framework.flood import Caller, Flood, memory_kib
from framework.grpcflood import health_watches
from functional.api.process_rig import Process, virt_api

from tests.bench.control import big_vmi, percentile
from tests.bench.rows import Row, times
from virt_api.authn import API_SERVER

ROUNDS = 300
HOOK = "/virtualmachineinstances-mutate"


def review(obj: dict[str, Any]) -> bytes:
    kind = {"group": "kubevirt.io", "version": "v1", "kind": obj["kind"]}
    request = {"uid": "r", "kind": kind, "namespace": "default", "operation": "CREATE", "object": obj}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def reviews_ms(api: Process, caller: Caller) -> list[float]:
    took, body = [], review(big_vmi("flooded"))
    for _ in range(ROUNDS):
        start = time.monotonic()
        status, _ = caller.ask("POST", api.hook(HOOK), body)
        assert status == 200
        took.append((time.monotonic() - start) * 1000)
    return took


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, virt_api(Path(folder)) as api:
        caller = api.caller(30.0)
        peace = reviews_ms(api, caller)
        streams = health_watches(api.automation, api.ca.pem, 512)
        with Flood(api.port, api.tls) as flood, Flood(api.port, api.server_tls) as inside, streams:
            flood.half_sent_headers(200)
            inside.unfinished_bodies(60, api.hook(HOOK), (4 << 20) - 1, API_SERVER)
            war = reviews_ms(api, caller)
        caller.close()
        most = memory_kib(api.pid)
    p99, calm = percentile(war, 0.99), percentile(peace, 0.99)
    name = "a review of an 8 KB VMI under a flood, P99 / in peace"
    return [
        Row(name, f"{p99:.1f} ms", "< 1000 ms", f"{calm:.1f} ms", times(p99, calm)),
        Row("virt-api's most memory in that time", f"{most >> 10} MiB", "<= 512 MiB (the chart's limit)"),
    ]


if __name__ == "__main__":
    from tests.bench.rows import show

    show(rows())
