"""passt: what it is asked for, what it becomes through, and what cannot be."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.interfaces import Interface
from virt_launcher.errors import InvalidVMIError
from virt_launcher.passt import become, carrier
from virt_launcher.process.children import Children

PATH = "spec.domain.devices.interfaces[0]"


def nic(*ports: dict[str, Any]) -> Interface:
    return from_plain({"name": "default", "passtBinding": {}, "ports": list(ports)}, Interface)


@pytest.mark.parametrize(
    ("ports", "tcp", "udp"),
    [
        ([], "all", "all"),
        ([{"port": 443}, {"port": 80}, {"port": 80}], "80,443", "none"),
        ([{"port": 53, "protocol": "UDP"}], "none", "53"),
    ],
)
def test_all_ports_or_those_that_are_listed(ports: list[dict[str, Any]], tcp: str, udp: str) -> None:
    words = carrier.arguments(nic(*ports), Path("/room"), "vm1")
    assert words[words.index("--tcp-ports") + 1] == tcp
    assert words[words.index("--udp-ports") + 1] == udp
    assert words[words.index("--socket") + 1] == "/room/passt.sock"
    assert words[words.index("--hostname") + 1] == "vm1"


def test_the_guest_never_gets_the_pods_loopback() -> None:
    assert become.command(["--one-off"], "/usr/bin/passt") == ["/usr/bin/passt", "--one-off", "--no-map-gw"]


def test_too_few_files_for_all_ports_name_the_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 20_000))
    with pytest.raises(InvalidVMIError, match=r"interfaces\[0\]\.ports: .* 80000 files, and here it may open 20000"):
        carrier.Carrier(tmp_path, Children()).begin(PATH, nic(), "vm1")


def test_a_passt_from_before_is_none(tmp_path: Path) -> None:
    """Known by what came with it later."""
    for name in ("passt", "passt-repair"):
        with pytest.raises(become.PasstError, match="package passt"):
            become.find(str(tmp_path / "nowhere"), own=str(tmp_path))
        (tmp_path / name).touch(mode=0o755)
    assert become.find("", own=str(tmp_path)) == str(tmp_path / "passt")


def test_the_filter_answers_four_calls_and_leaves_the_others() -> None:
    for machine, (_, numbers) in become.CALLS.items():
        code = become.program(machine)
        assert len(code) == 8 * (5 + 2 * len(numbers))
    with pytest.raises(become.PasstError, match="riscv64"):
        become.program("riscv64")
