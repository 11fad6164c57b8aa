"""Wires the network of a launcher Pod while its launcher starts: runs virt-netsetup, keeps what it reports.

It is a program of its own, so that the code that works inside a Pod's namespaces stays small and single-threaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from virt_core.apis import handoffs, names
from virt_core.apis.base import decode, encode
from virt_core.apis.devices import DHCPOptions, Interface
from virt_core.apis.netplan import (
    BINDING_BRIDGE,
    BINDING_MASQUERADE,
    NetDhcpOption,
    NetDhcpOptions,
    NetPlan,
    NetPlanInterface,
    NetPort,
    NetReport,
)
from virt_core.apis.networks import decimal_octets
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.clock import Clock, parse_rfc3339, rfc3339_micro
from virt_core.runtime.logs import get_logger
from virt_handler.loop.records import GhostRecord, NetworkRecord, RecordStore
from virt_handler.loop.sessions import Session
from virt_handler.pods import isolation
from virt_handler.pods import resolver as resolvers
from virt_handler.pods.files import checked_name
from virt_handler.pods.resolver import Resolver

log = get_logger(__name__)

TIMEOUT_S = handoffs.NETWORK_READY.deadline_s
_MAX_REPORT = 1 << 20
_MAX_PARALLEL = 8
_MAX_QUEUES = 256

Done = Callable[[Session], object]


class NetworkError(Exception):
    """The network could not be set up."""

    def __init__(self, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


def plan(
    vmi: VirtualMachineInstance,
    pod_uid: str,
    *,
    pod_pid: int = 0,
    netns_path: str = "",
    state_dir: str = "",
    resolver: Resolver | None = None,
) -> NetPlan:
    """What virt-netsetup is asked for. Raises NetworkError for what it cannot do."""
    return NetPlan(
        vmi_uid=vmi.metadata.uid,
        pod_uid=pod_uid,
        pod_pid=pod_pid,
        netns_path=netns_path,
        launcher_uid=names.LAUNCHER_UID,
        state_dir=state_dir,
        interfaces=[_interface(vmi, nic, resolver or Resolver()) for nic in wanted_interfaces(vmi)],
    )


def wanted_interfaces(vmi: VirtualMachineInstance) -> list[Interface]:
    return [nic for nic in vmi.spec.domain.devices.interfaces if nic.state != "absent"]


def _interface(vmi: VirtualMachineInstance, nic: Interface, resolver: Resolver) -> NetPlanInterface:
    network = next((network for network in vmi.spec.networks if network.name == nic.name), None)
    if network is None or network.pod is None:
        raise NetworkError(f'interface "{nic.name}" is not on the Pod network, and no other is supported', fatal=True)
    if nic.masquerade is None and nic.bridge is None:
        raise NetworkError(f'interface "{nic.name}" has neither masquerade nor bridge binding', fatal=True)
    return NetPlanInterface(
        name=nic.name,
        binding=BINDING_MASQUERADE if nic.masquerade is not None else BINDING_BRIDGE,
        mac=nic.mac_address,
        ports=[NetPort(port=port.port, protocol=port.protocol or "TCP", name=port.name) for port in nic.ports],
        vm_network_cidr=decimal_octets(network.pod.vm_network_cidr),
        vm_ipv6_network_cidr=network.pod.vm_ipv6_network_cidr,
        queues=queues(vmi, nic),
        hostname=vmi.spec.hostname or vmi.metadata.name,
        dns_servers=list(resolver.servers),
        search_domains=list(resolver.searches),
        dhcp_options=_dhcp_options(nic.dhcp_options),
        link_down=nic.state == "down",
    )


def queues(vmi: VirtualMachineInstance, nic: Interface) -> int:
    if not vmi.spec.domain.devices.network_interface_multiqueue or (nic.model or "virtio") != "virtio":
        return 1
    cpu = vmi.spec.domain.cpu
    count = max(cpu.cores, 1) * max(cpu.sockets, 1) * max(cpu.threads, 1) if cpu is not None else 1
    return min(count, _MAX_QUEUES)


def _dhcp_options(options: DHCPOptions | None) -> NetDhcpOptions | None:
    if options is None:
        return None
    return NetDhcpOptions(
        boot_file_name=options.boot_file_name,
        tftp_server_name=options.tftp_server_name,
        ntp_servers=[decimal_octets(server) for server in options.ntp_servers],
        private_options=[NetDhcpOption(option=o.option, value=o.value) for o in options.private_options],
    )


class NetworkWiring:
    """Runs virt-netsetup beside the loop, a few at a time."""

    def __init__(
        self, command: Sequence[str], state_dir: str, records: RecordStore[NetworkRecord], clock: Clock, done: Done
    ) -> None:
        self._command = list(command)
        self._state_dir = state_dir
        self._records, self._clock, self._done = records, clock, done
        self._pool = ThreadPoolExecutor(_MAX_PARALLEL, thread_name_prefix="netsetup")

    def recall(self, session: Session) -> bool:
        """Takes what a former process of ours had found out. False: nothing."""
        record = self._records.get(session.pod_uid)
        if record is None:
            return False
        session.network_done(record.report, parse_rfc3339(record.time) if record.time else None)
        return True

    def start(self, session: Session, vmi: VirtualMachineInstance) -> None:
        if not wanted_interfaces(vmi):
            session.network_done(NetReport())
            self._done(session)
            return
        session.network_started()
        self._pool.submit(self._work, session, vmi)

    def take_over(self, ghosts: Iterable[GhostRecord]) -> None:
        """What an older virt-handler kept by the VMI's UID goes to the Pod that it had. DHCP servers do not notice."""
        self._records.take_over()
        for ghost in ghosts:
            old, new = (os.path.join(self._state_dir, checked_name(uid)) for uid in (ghost.vmi_uid, ghost.pod_uid))
            if os.path.isdir(old) and not os.path.exists(new):
                os.rename(old, new)

    def forget(self, pod_uid: str) -> None:
        """The Pod is gone, and with it its network and its DHCP server; what is left are records."""
        self._records.delete(pod_uid)
        shutil.rmtree(os.path.join(self._state_dir, checked_name(pod_uid)), ignore_errors=True)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self, session: Session, vmi: VirtualMachineInstance) -> None:
        try:
            report = self._setup(session.pod_uid, vmi)
            now = self._clock.now()
            record = NetworkRecord(pod_uid=session.pod_uid, report=report, time=rfc3339_micro(now))
            self._records.put(record)
            session.network_done(report, now)
        except NetworkError as error:
            log.warning("the network could not be wired", vmi=session.key, error=str(error), fatal=error.fatal)
            session.network_failed(str(error), fatal=error.fatal)
        except Exception as error:
            log.exception("wiring the network failed", vmi=session.key)
            session.network_failed(f"{type(error).__name__}: {error}", fatal=False)
        self._done(session)

    def _setup(self, pod_uid: str, vmi: VirtualMachineInstance) -> NetReport:
        try:
            netns = isolation.open_netns(pod_uid)
        except isolation.NoNamespaceError as error:
            raise NetworkError(str(error)) from error
        try:
            wish = plan(
                vmi,
                pod_uid,
                pod_pid=netns.pid,
                netns_path=f"/proc/self/fd/{netns.fd}",
                state_dir=self._state_dir,
                resolver=resolvers.of_vmi(vmi, pod_uid),
            )
            return run(self._command, wish, netns.fd)
        finally:
            netns.close()


def run(command: Sequence[str], wish: NetPlan, *pass_fds: int) -> NetReport:
    """One run of virt-netsetup. Raises NetworkError."""
    try:
        done = subprocess.run(
            list(command),
            input=encode(wish),
            capture_output=True,
            timeout=TIMEOUT_S,
            pass_fds=pass_fds,
            # Ours is open for the sockets that we make in Pods; nobody else needs that.
            umask=0o077,
            check=False,
        )
    except FileNotFoundError as error:
        raise NetworkError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise NetworkError(f"virt-netsetup did not end within {TIMEOUT_S:.0f} s") from error
    report = _read(done)
    if report.error is not None:
        raise NetworkError(f"{report.error.step}: {report.error.message}", fatal=report.error.critical)
    if done.returncode != 0:
        raise NetworkError(_last_words(done))
    return report


def _read(done: subprocess.CompletedProcess[bytes]) -> NetReport:
    try:
        return decode(done.stdout[:_MAX_REPORT], NetReport)
    except msgspec.MsgspecError as error:
        raise NetworkError(_last_words(done)) from error


def _last_words(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"virt-netsetup ended with code {done.returncode}: {lines[-1][:500] if lines else 'it said nothing'}"
