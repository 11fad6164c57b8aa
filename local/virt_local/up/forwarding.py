"""The kernel's switches for passing packets on: turned on by `up`, put back by the `down` of the last who needs them.

What a switch was before stands in one file for the whole machine, because instances share the switches. Like the
switches themselves it does not survive a reboot.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from virt_local.up.errors import NetworkError

IPV4 = "ipv4/ip_forward"
IPV6 = "ipv6/conf/all/forwarding"


@dataclass(slots=True)
class Before:
    """How it was: the switches that were changed, and the bridges that did without forwarding."""

    values: dict[str, str] = field(default_factory=dict)
    content: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Switches:
    """The places, so that a test can have its own."""

    sysctl: Path = Path("/proc/sys/net")
    devices: Path = Path("/sys/class/net")
    record: Path = Path("/run/virtpod-forwarding.json")

    def turn_on(self, own_bridge: str) -> None:
        """In the machine's own network. Remembers what it changes before it does so."""
        with self._locked():
            before = self._recorded()
            changes = self._changes()
            if changes:
                before.content = tuple(sorted({*before.content, *(self._bridges() - {own_bridge})}))
                before.values = {name: self._read(name) for name in changes} | before.values
                self._remember(before)
            for name, value in changes.items():
                (self.sysctl / name).write_text(value)

    def put_back(self) -> str:
        """Returns why it left them on, or nothing."""
        with self._locked():
            before = self._recorded()
            if not before.values:
                return ""
            if others := sorted(self._bridges() - {*before.content}):
                return f"forwarding stays on, because {', '.join(others)} may need it"
            for name, value in before.values.items():
                if (self.sysctl / name).exists():
                    (self.sysctl / name).write_text(value)
            self.record.unlink()
            return ""

    def _bridges(self) -> set[str]:
        """A bridge means containers or guests of somebody."""
        return {path.parent.name for path in self.devices.glob("*/bridge")}

    def _changes(self) -> dict[str, str]:
        wanted = {name: "1" for name in (IPV4, IPV6) if self._read(name) == "0"}
        return {**(self._keep_router_discovery() if IPV6 in wanted else {}), **wanted}

    def _keep_router_discovery(self) -> dict[str, str]:
        """A machine that forwards IPv6 ignores its router's advertisements, and with them its own way out; 2 says: do
        not. Ports and bridges of containers have no router to listen to."""
        found = (path.parent.name for path in self.sysctl.glob("ipv6/conf/*/accept_ra"))
        own = [name for name in found if (self.devices / name).exists() and not self._has_no_router(name)]
        switches = [f"ipv6/conf/{name}/accept_ra" for name in sorted(own)]
        return {name: "2" for name in switches if self._read(name) == "1"}

    def _has_no_router(self, device: str) -> bool:
        return device == "lo" or any((self.devices / device / part).exists() for part in ("bridge", "brport"))

    def _read(self, name: str) -> str:
        path = self.sysctl / name
        return path.read_text().strip() if path.exists() else ""

    def _recorded(self) -> Before:
        if not self.record.exists():
            return Before()
        try:
            return Before(**json.loads(self.record.read_text()))
        except (ValueError, TypeError) as err:
            raise NetworkError(f"{self.record} cannot be read: remove it, and turn forwarding off by hand") from err

    def _remember(self, before: Before) -> None:
        temporary = self.record.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(before)) + "\n")
        temporary.replace(self.record)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Two instances may come and go at once. The directory is locked, so that no lock file stays behind."""
        fd = os.open(self.record.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def has_ipv6() -> bool:
    return Path("/proc/sys/net/ipv6").exists()


def route_bridged_here() -> None:
    """In the namespace of the calling thread, which is ours alone: what a Pod sends to itself by a Service is routed.
    With the kernel's rules for bridged packets it would be bridged, and a bridge sends nothing back whence it came."""
    for name in ("iptables", "ip6tables"):
        switch = Path(f"/proc/sys/net/bridge/bridge-nf-call-{name}")
        if switch.exists():
            switch.write_text("0")


def open_low_ports_here(first: int) -> None:
    """In the namespace of the calling thread, which is ours alone: from this port on anybody in it may listen."""
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text(str(first))


def turn_on_here() -> None:
    """In the namespace of the calling thread, which is ours alone."""
    for name in (IPV4, IPV6):
        path = Path("/proc/sys/net", name)
        if path.exists():
            path.write_text("1")
