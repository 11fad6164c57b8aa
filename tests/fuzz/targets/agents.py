"""What a guest agent answers, as the launcher reads it: short, flat, of few rows, whatever the guest says.

An input is the text of one answer; every reader of answers gets it. A JSON object is also read as libvirt's flat
parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz.hostile import text_of
from fuzz.mutate import decode_plain, edited, json_bytes
from fuzz.target import Run, Target
from hypothesis import strategies as st

from virt_launcher.domain.domain import Domain
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor import agent
from virt_launcher.hypervisor.ports import AgentInfo, Facts, GuestExit, State
from virt_launcher.machine.state import AgentView, compose
from virt_launcher.service.messages import domain_message, filesystem_message, guest_info_message, user_message

#: All that a guest can make the launcher say of itself, in one message.
_MOST = 512 << 10

_DISK = {"serial": "s", "bus-type": "virtio", "bus": 0, "target": 0, "unit": 0, "dev": "/dev/vda1"}
ANSWERS: list[Any] = [
    {"return": {"version": "7.2.0", "supported_commands": [{"name": "guest-ping", "enabled": True}]}},
    {"return": [{"user": "root", "login-time": 1700000000.5, "domain": "d"}]},
    {
        "return": [
            {"name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 1, "total-bytes": 2, "disk": [_DISK]}
        ]
    },
    {"return": {"pid": 7}},
    {"return": {"exitcode": 0, "out-data": "aGVsbG8=", "exited": True}},
    {"error": {"class": "CommandNotFound", "desc": "no"}},
    {
        "os.id": "debian",
        "os.name": "Debian",
        "hostname": "guest",
        "timezone.name": "UTC",
        "if.count": 1,
        "if.0.name": "eth0",
        "if.0.hwaddr": "02:00:00:00:00:01",
        "if.0.addr.count": 2,
        "if.0.addr.0.addr": "10.0.2.2",
        "if.0.addr.1.addr": "fe80::1",
    },
]


@contextmanager
def door(_directory: Path) -> Iterator[Run]:
    yield judge


def judge(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    about = AgentInfo(agent.version_from_answer(text), agent.commands_from_answer(text))
    users = [user_message(user) for user in agent.users_from_answer(text)]
    disks = [filesystem_message(filesystem) for filesystem in agent.filesystems_from_answer(text)]
    _ran(text)
    flat = decode_plain(data)
    report = agent.report_from_params(flat if isinstance(flat, dict) else {})
    view = compose("ns_vm", Facts(State.RUNNING, "Booted", "uuid"), Domain(), AgentView(True, report, about))
    said = [*users, *disks, domain_message(view), guest_info_message(view)]
    size = sum(len(message.SerializeToString()) for message in said)
    assert size <= _MOST, f"the guest made the launcher say {size} bytes"


def _ran(text: str) -> None:
    """What became of a command in the guest."""
    for read in (agent.number_from_answer, agent.exit_from_answer):
        try:
            found = read(text)
        except LauncherError:
            continue
        assert not isinstance(found, GuestExit) or (
            0 <= found.exit_code <= 255 and len(found.output) <= 2 * agent.MAX_OUTPUT
        )


def _rows(row: Any) -> Any:
    return lambda count: text_of({"return": [row] * count}).encode()


FAMILIES = {
    "users": _rows({"user": "root", "domain": "d", "login-time": 1}),
    "filesystems": _rows({"name": "vda1", "disk": [_DISK] * 4}),
    "commands": lambda n: text_of(
        {"return": {"supported_commands": [{"name": "guest-ping", "enabled": True}] * n}}
    ).encode(),
    "nested": lambda n: b'{"return":' + b"[" * n,
    "digits": lambda n: b'{"return":[{"used-bytes":' + b"9" * n + b"}]}",
}

TARGET = Target("agents", json_bytes(edited(ANSWERS) | st.sampled_from(ANSWERS)), door, 600, FAMILIES)
