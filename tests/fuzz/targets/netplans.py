"""Plans for virt-netsetup, which runs as root: a plan is wired in a Pod of memory, or refused in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz.hostile import text_of
from fuzz.mutate import edited, json_bytes, whole_document
from fuzz.target import Run, Target
from unit.netsetup.conftest import make_pod

from virt_core.apis.base import encode
from virt_core.apis.netplan import NetPlan
from virt_netsetup import main
from virt_netsetup.main import answer

NIC = {"name": "default", "binding": "masquerade", "podInterface": "eth0", "hostname": "vm"}
PLAN: dict[str, Any] = {"vmiUid": "uid-1", "podUid": "pod-1", "netnsPath": "/somewhere", "interfaces": [NIC]}
BRIDGE = {**PLAN, "interfaces": [{**NIC, "binding": "bridge", "mac": "02:00:00:00:00:01", "ports": [{"port": 80}]}]}
WHOLE = {**whole_document(NetPlan), "stateDir": "state"}


@contextmanager
def door(directory: Path) -> Iterator[Run]:
    """`run` of the program, with the Pod of memory in the place of the kernel's."""
    original = main.run

    def run(plan: NetPlan, handed: object = None) -> Any:
        main.compose.check_plan(plan)
        pod = make_pod(directory / "pod")
        report = main._act(plan, pod.world, pod.state)
        for server in pod.dhcp.servers.values():
            assert all("\n" not in word for word in server.arguments()[:15])
            assert all(word.startswith("--") for word in server.arguments())
        json.dumps([[chain, rule] for table in pod.firewall.tables.values() for chain, rule in table.rules])
        return report

    main.run = run
    try:
        yield lambda data: judge(directory, data)
    finally:
        main.run = original


def judge(directory: Path, data: bytes) -> None:
    shutil.rmtree(directory / "pod", ignore_errors=True)
    report = encode(answer(data))
    assert len(report) <= 4 * len(data) + 4096


def _plan(**fields: Any) -> bytes:
    return text_of({**PLAN, "stateDir": "state", "interfaces": [{**NIC, **fields}]}).encode()


FAMILIES = {
    "ports": lambda n: _plan(ports=[{"port": 1 + i % 65535} for i in range(n)]),
    "searches": lambda n: _plan(searchDomains=["a.b"] * n),
    "servers": lambda n: _plan(dnsServers=["10.0.0.1"] * n),
    "options": lambda n: _plan(dhcpOptions={"privateOptions": [{"option": 224, "value": "x"}] * n}),
}

TARGET = Target(
    "netplans", json_bytes(edited([{**PLAN, "stateDir": "s"}, {**BRIDGE, "stateDir": "s"}], WHOLE)), door, 300, FAMILIES
)
