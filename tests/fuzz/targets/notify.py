"""Messages of a launcher to virt-handler, and what the VMI's status becomes by them.

An input is the name of the call in the first line and a protobuf message after it. The status that a launcher can bring
about has a size, whatever the launcher says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from framework.vmis import POD_UID, UID, handed_over
from fuzz.mutate import maybe_noisy, messages
from fuzz.target import Run, Target
from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from virt_core.apis import names
from virt_core.apis.podroles import Role
from virt_core.apis.registry import encode_object
from virt_core.rpc.status import RpcFailure
from virt_core.runtime.clock import FakeClock
from virt_handler.decisions.status import notes, reported
from virt_handler.decisions.steps import next_step
from virt_handler.loop.rates import Rates
from virt_handler.loop.records import GhostRecord
from virt_handler.loop.sessions import Session
from virt_handler.pods.notify_server import NotifyServicer
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.notify.v1 import notify_pb2 as pb

CALLS: dict[str, Any] = {
    "Hello": pb.HelloRequest,
    "DomainChanged": pb.DomainChangedRequest,
    "RecordEvent": pb.RecordEventRequest,
}
#: What a status may take at the API server, where all of it is read by everybody who watches VMIs.
STATUS_BYTES = 128 << 10
NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@st.composite
def calls(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from((*CALLS, "DomainChanged", "DomainChanged")))
    message = draw(messages(CALLS[name]))
    if name == "DomainChanged":
        message.sequence = max(message.sequence, 1)
        if draw(st.booleans()):
            message.domain.state = launcher_pb2.DOMAIN_STATE_RUNNING
    return name.encode() + b"\n" + message.SerializeToString()


def session() -> Session:
    plenty = Rates(domain_burst=1e9, domain_per_second=1e9, event_burst=1e9, event_per_second=1e9)
    record = GhostRecord(pod_uid=POD_UID, vmi_uid=UID, namespace="default", name="vm")
    made = Session(record, FakeClock(), plenty)
    made.role = Role.ACTIVE
    return made


def status_bounded(known: Session) -> None:
    """What the loop does with a message: the next step, the status, the Events."""
    for phase in (names.PHASE_SCHEDULED, names.PHASE_RUNNING):
        vmi = handed_over(phase)
        view = known.view()
        step = next_step(vmi, view, NOW, Role.ACTIVE)
        after = reported(vmi, view, step, NOW)
        size = len(encode_object(after))
        assert size <= STATUS_BYTES, f"a launcher made a VMI of {size} bytes"
        assert all(len(message) <= 4096 for _, _, message in notes(vmi, after))


@contextmanager
def door(_directory: Path) -> Iterator[Run]:
    yield judge


def judge(data: bytes) -> None:
    name, _, body = data.partition(b"\n")
    cls = CALLS.get(name.decode(errors="replace"))
    if cls is None:
        return
    try:
        request = cls.FromString(body)
    except DecodeError:
        return  # gRPC answers this by itself.
    told: list[tuple[str, ...]] = []
    known = session()
    servicer: Any = NotifyServicer(known, lambda *_: None, lambda _, *rest: told.append(rest))
    try:
        getattr(servicer, name.decode())(request, None)
    except RpcFailure:
        pass
    assert all(len(text) <= 4096 for event in told for text in event)
    status_bounded(known)


def _domain(**fields: Any) -> bytes:
    domain = launcher_pb2.Domain(state=launcher_pb2.DOMAIN_STATE_RUNNING, **fields)
    return b"DomainChanged\n" + pb.DomainChangedRequest(domain=domain, sequence=1).SerializeToString()


FAMILIES = {
    "disks": lambda n: _domain(disk_targets={f"d{i}": "vda" for i in range(n)}),
    "interfaces": lambda n: _domain(
        interfaces=[launcher_pb2.GuestInterface(mac=f"{i}", from_agent=True) for i in range(n)], agent_connected=True
    ),
    "commands": lambda n: _domain(agent_commands=["guest-ping"] * n, agent_connected=True),
    "machine": lambda n: _domain(machine_type="q" * n),
}

TARGET = Target("notify", maybe_noisy(calls()), door, 300, FAMILIES)
