"""Domain XML and statistics as libvirt hands them over, after a guest had its hand in them.

An input is XML, or a JSON object of libvirt's flat statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from framework.documents import ROOT
from fuzz.mutate import decode_plain, edited, json_bytes, noisy
from fuzz.target import Run, Target
from hypothesis import strategies as st

from virt_launcher.domain.domain import from_xml, to_xml
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.ports import Facts, State
from virt_launcher.machine.state import AgentView, compose
from virt_launcher.machine.stats import stats_json
from virt_launcher.service.messages import domain_message

GOLDEN = sorted((ROOT / "tests/golden/launcher").rglob("*.xml"))
WORDS = (
    "",
    "yes",
    "off",
    "-1",
    "9" * 4400,
    "0x10",
    "\u0661",
    "é" * 300,
    "&#0;",
    "&a;",
    "<x/>",
    "ua-",
    "]]>",
    "1.5",
    " 7 ",
)
STATS = {
    "cpu.time": 1,
    "balloon.current": 1,
    "vcpu.current": 1,
    "vcpu.maximum": 2,
    "vcpu.0.state": 1,
    "vcpu.0.time": 1,
    "net.count": 1,
    "net.0.name": "tap0",
    "net.0.rx.bytes": 1,
    "block.count": 1,
    "block.0.name": "vda",
}


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    text = draw(st.sampled_from(GOLDEN)).read_text()
    for _ in range(draw(st.integers(1, 3))):
        quoted = [place for place, letter in enumerate(text) if letter in "'\">"]
        at = quoted[draw(st.integers(0, 1 << 20)) % len(quoted)] + 1
        end = min((where for where in (text.find(mark, at) for mark in "'\"<") if where >= 0), default=len(text))
        text = text[:at] + draw(st.sampled_from(WORDS)) + text[end:]
    data = text.encode()
    return draw(noisy(data)) if draw(st.integers(0, 3)) == 0 else data


@contextmanager
def door(_directory: Path) -> Iterator[Run]:
    yield judge


def judge(data: bytes) -> None:
    flat = decode_plain(data)
    if isinstance(flat, dict):
        # libvirt's numbers are numbers; only what they say is not to be believed.
        typed = {k: v for k, v in flat.items() if type(v) is int or (type(v) is str and not k.endswith(_NUMBERS))}
        stats = stats_json("ns_vm", "uuid", typed)
        assert len(stats) <= 64 * len(data) + 4096
        return
    try:
        domain = from_xml(data.decode(errors="replace"))
        view = compose("ns_vm", Facts(State.RUNNING, "Booted", "uuid"), domain, AgentView())
        to_xml(domain)
    except LauncherError:
        return
    assert len(domain_message(view).SerializeToString()) <= 8 * len(data) + 4096


_NUMBERS = (".count", ".maximum", ".current")
FAMILIES = {
    "disks": lambda n: b"<domain><devices>" + b"<disk><alias name='ua-d'/></disk>" * n + b"</devices></domain>",
    "nested": lambda n: b"<domain>" + b"<a>" * n + b"</a>" * n + b"</domain>",
    "vcpus": lambda n: b'{"vcpu.maximum":' + str(n).encode() + b"}" + b" " * n,
    "nets": lambda n: ("{" + ",".join(f'"net.{i}.rx.bytes":1' for i in range(n)) + f',"net.count":{n}' + "}").encode(),
}

TARGET = Target("domains", documents() | json_bytes(edited([STATS])), door, 300, FAMILIES)
