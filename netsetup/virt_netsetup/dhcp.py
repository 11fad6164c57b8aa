"""The guest's DHCP server and router advertisements: one dnsmasq for each guest NIC.

It outlives us. It runs in the Pod's network and PID namespaces and in the Pod's cgroup, so that it ends with the
launcher even if nobody is left to stop it, and as nobody, with the few capabilities that dnsmasq keeps for itself.
It reads no file of the host and writes none but its process id and its log, both in our state directory.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import signal
import time
from pathlib import Path
from typing import Protocol

from virt_core.apis.base import Struct, decode, encode
from virt_netsetup.model import Address, NetsetupError, Value
from virt_netsetup.process import Placement, host_pid, run, start_time

PROGRAM = "dnsmasq"
# 999 days: the guest's address does not change while it lives, and some clients stumble over an endless lease.
LEASE_S = 86313600
STOP_WITHIN_S = 3.0
START_WITHIN_S = 10.0

_FIXED = (
    "--conf-file=",
    "--port=0",
    "--no-hosts",
    "--no-resolv",
    "--no-ping",
    "--leasefile-ro",
    "--bind-interfaces",
    "--except-interface=lo",
    "--dhcp-authoritative",
    "--dhcp-broadcast",
    "--dhcp-ignore-clid",
    "--quiet-dhcp",
    "--quiet-dhcp6",
    "--quiet-ra",
    "--user=nobody",
)


class DhcpOptions(Value, frozen=True):
    """What the guest is told beside its address."""

    mtu: int
    hostname: str = ""
    router: str = ""
    search: tuple[str, ...] = ()
    dns4: tuple[str, ...] = ()
    dns6: tuple[str, ...] = ()
    ntp: tuple[str, ...] = ()
    boot_file: str = ""
    tftp_server: str = ""
    routes: tuple[tuple[str, str], ...] = ()
    private: tuple[tuple[int, str], ...] = ()


class DhcpServer(Value, frozen=True):
    """One address a family to hand out on one bridge. With a MAC only that guest is answered, else whoever asks."""

    name: str
    interface: str
    options: DhcpOptions
    address4: Address | None = None
    address6: Address | None = None
    mac: str = ""

    def arguments(self) -> list[str]:
        words = [*_FIXED, f"--interface={self.interface}"]
        if self.address4:
            words += self._range4(self.address4) + self._options4()
        if self.address6:
            words += self._range6(self.address6)
        return words

    def _range4(self, address: Address) -> list[str]:
        mask = ipaddress.ip_network(f"{address.ip}/{address.prefix}", strict=False).netmask
        if not self.mac:
            return [f"--dhcp-range={address.ip},{address.ip},{mask},{LEASE_S}"]
        # The bridge's own address is in another network, so dnsmasq has to be told which range belongs to it.
        return [
            f"--dhcp-range={address.ip},static,{mask},{LEASE_S}",
            f"--shared-network={self.interface},{address.ip}",
            f"--dhcp-host={self.mac},{address.ip},{LEASE_S}",
            "--dhcp-ignore=tag:!known",
        ]

    def _options4(self) -> list[str]:
        given = self.options
        values = [
            ("router", given.router),
            ("dns-server", ",".join(given.dns4)),
            ("mtu", str(given.mtu)),
            ("classless-static-route", self._routes()),
        ]
        optional = [
            ("domain-search", ",".join(given.search)),
            ("domain-name", given.search[0] if given.search else ""),
            ("12", given.hostname),
            ("ntp-server", ",".join(given.ntp)),
            ("tftp-server", given.tftp_server),
            ("bootfile-name", given.boot_file),
            *((str(number), value) for number, value in given.private),
        ]
        # An empty router or name server must be said, or dnsmasq offers itself.
        words = [_option(name, value) for name, value in values if value or name in ("router", "dns-server")]
        return words + [_option(name, value) for name, value in optional if value]

    def _routes(self) -> str:
        """A client that takes classless routes ignores the router option, so the default route comes along, last."""
        given = self.options
        if not given.routes:
            return ""
        routes = [f"{destination},{hop or '0.0.0.0'}" for destination, hop in given.routes]
        return ",".join([*routes, f"0.0.0.0/0,{given.router}"] if given.router else routes)

    def _range6(self, address: Address) -> list[str]:
        words = [
            "--enable-ra",
            f"--dhcp-range={address.ip},{address.ip},{address.prefix},{LEASE_S}",
            f"--ra-param={self.interface},mtu:{self.options.mtu},60",
        ]
        if self.options.dns6:
            words.append("--dhcp-option=option6:dns-server," + ",".join(f"[{server}]" for server in self.options.dns6))
        if self.options.search:
            words.append("--dhcp-option=option6:domain-search," + ",".join(self.options.search))
        return words


def _option(name: str, value: str) -> str:
    key = name if name.isdigit() else f"option:{name}"
    return f"--dhcp-option={key},{value}" if value else f"--dhcp-option={key}"


class DhcpServers(Protocol):
    def runs(self, server: DhcpServer) -> bool: ...
    def start(self, server: DhcpServer) -> None: ...
    def stop(self, name: str) -> None: ...
    def pid_of(self, name: str) -> int | None: ...


class Started(Struct):
    """A process id alone may be somebody else's by now; with the time of its start it cannot."""

    pid: int
    start_time: int
    digest: str


class Dnsmasq(Value, frozen=True):
    directory: Path
    placement: Placement = Placement()

    def runs(self, server: DhcpServer) -> bool:
        started = self._started(server.name)
        return started is not None and started.digest == _digest(server) and _alive(started)

    def pid_of(self, name: str) -> int | None:
        started = self._started(name)
        return started.pid if started is not None and _alive(started) else None

    def start(self, server: DhcpServer) -> None:
        self.stop(server.name)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        pid_file, log = self._file(server.name, "pid"), self._file(server.name, "log")
        command = [PROGRAM, *server.arguments(), f"--pid-file={pid_file}", f"--log-facility={log}"]
        # dnsmasq goes into the background once its sockets are bound: when the command ends, it serves.
        code, complaint = run(command, self.placement, START_WITHIN_S)
        if code != 0:
            raise NetsetupError("StartDhcp", f"dnsmasq did not start: {complaint or f'exit code {code}'}")
        pid = host_pid(int(pid_file.read_text()), self.placement)
        record = Started(pid=pid, start_time=start_time(pid) or 0, digest=_digest(server))
        self._file(server.name, "json").write_bytes(encode(record))

    def stop(self, name: str) -> None:
        started = self._started(name)
        if started is not None and _alive(started):
            _end(started)
        for suffix in ("json", "pid", "log"):
            self._file(name, suffix).unlink(missing_ok=True)

    def _started(self, name: str) -> Started | None:
        try:
            return decode(self._file(name, "json").read_bytes(), Started)
        except (FileNotFoundError, ValueError):
            return None

    def _file(self, name: str, suffix: str) -> Path:
        return self.directory / f"{name}.dnsmasq.{suffix}"


def _digest(server: DhcpServer) -> str:
    return hashlib.sha256("\0".join(server.arguments()).encode()).hexdigest()


def _alive(started: Started) -> bool:
    return start_time(started.pid) == started.start_time


def _end(started: Started) -> None:
    """By a pid descriptor: between a look at the start time and the signal the number could change hands."""
    try:
        descriptor = os.pidfd_open(started.pid)
    except ProcessLookupError:
        return
    try:
        if not _alive(started):
            return
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        if not _ended(descriptor):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            _ended(descriptor)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _ended(descriptor: int) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + STOP_WITHIN_S
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
