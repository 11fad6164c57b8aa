"""What the loop does for a machine that moves: the errands to its launcher, and the way between the nodes.

The way lives in this process alone. If the process dies, libvirt at the source sees its end, and the move fails or is
held; nothing of it has to be found again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from virt_core.apis import names, volumemoves
from virt_core.apis.migrationstate import MigrationConfiguration
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState as MoveState
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.registry import encode_object
from virt_core.apis.sizes import usable
from virt_core.apis.topology import Cpu
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.workqueue import WorkQueue
from virt_core.rpc.peer import peer_credentials
from virt_core.rpc.status import RpcFailure
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.moving import CHANNELS, job_of, ports_of, under_way
from virt_handler.decisions.vocabulary import Action, Way
from virt_handler.loop.errands import Errands
from virt_handler.loop.sessions import Session
from virt_handler.moves.network import NotOnNetworkError, arrival_address
from virt_handler.moves.tunnel import Entrance, Exit
from virt_handler.node.devices.units import Host
from virt_handler.pods import device_nodes, isolation, memlock
from virt_handler.pods.files import PodFiles, connect
from virt_handler.pods.launchers import Launcher, is_fatal
from virt_handler.pods.peers import PodOf
from virt_handler.pods.sockets import make_listener, remove
from virt_protos.launcher.v1 import launcher_pb2 as pb

log = get_logger(__name__)

_MIB = 1 << 20
_CONNECT_S = 10.0
#: As many as KubeVirt uses, where no limit of processor time would make them wait for one another.
_PARALLEL = 8
#: A checksum of a large image takes its time.
_LOOK_S = 240.0
_MAX_CPUS = 4096
#: Images that a launcher makes are a few megabytes; the other side makes a file of the size that it is told.
_MAX_IMAGE = 64 << 20
_MAX_DISK = 1 << 60
_LIBVIRT_SOCKETS = ("virtqemud-sock", "libvirt-sock")


@dataclass(frozen=True, slots=True)
class Place:
    """This node, as the others reach it."""

    node: str
    address: str
    tls: Callable[[], TlsFiles]
    namespace: str = names.INSTALL_NAMESPACE

    def peer(self, node: str) -> str:
        return names.tls_name_node(node, self.namespace)


@dataclass(slots=True)
class Moves:
    place: Place
    files: PodFiles
    errands: Errands
    queue: WorkQueue
    host: Host
    options: Callable[[Session, VirtualMachineInstance], pb.SyncOptions]
    #: The cluster's network for moves; empty: they go where all else goes.
    network: Callable[[], str]
    pod_of: PodOf = isolation.pod_of
    _lock: threading.Lock = field(default_factory=threading.Lock)
    #: By the Pod's UID, each with its job.
    _ways: dict[str, tuple[str, Entrance | Exit]] = field(default_factory=dict)

    def act(self, action: Action, session: Session, vmi: VirtualMachineInstance | None) -> None:
        launcher = session.launcher
        if vmi is None or launcher is None:
            return
        job = job_of(action, vmi, session.view().domain)
        body: dict[Action, Callable[[], None]] = {
            Action.PREPARE_TARGET: lambda: self._prepare(session, vmi, launcher),
            Action.DISK_FACTS: lambda: self._look(session, vmi, launcher),
            Action.MIGRATE: lambda: self._migrate(session, vmi, launcher),
            Action.CANCEL_MOVE: lambda: launcher.cancel_migration(job),
            Action.SETTLE_STAYS: lambda: launcher.settle_migration(job, gone=False),
            Action.SETTLE_GONE: lambda: launcher.settle_migration(job, gone=True),
        }
        if action is Action.PREPARE_TARGET:
            session.prepare_started()
        if action is Action.DISK_FACTS:
            move = under_way(vmi)
            session.look_started(move.migration_uid if move is not None else "")
        self.errands.start(session, action.value, lambda: self._tried(session, action, body[action]))

    def _tried(self, session: Session, action: Action, body: Callable[[], None]) -> None:
        try:
            body()
        except (RpcFailure, OSError) as error:
            log.warning("a step of a move failed", vmi=session.key, action=action.value, error=str(error))
            if action is Action.PREPARE_TARGET:
                session.prepare_failed(str(error), fatal=_is_hopeless(error))
            if action is Action.DISK_FACTS:
                session.look_failed(str(error), fatal=_is_hopeless(error))
        self.queue.add(session.key)

    def close(self, session: Session) -> None:
        with self._lock:
            found = self._ways.pop(session.pod_uid, None)
        if found is not None:
            found[1].close()

    def close_all(self) -> None:
        with self._lock:
            ways = [way for _, way in self._ways.values()]
            self._ways.clear()
        for way in ways:
            way.close()

    # -- the side that it moves to -------------------------------------------------------------------------------------

    def _prepare(self, session: Session, vmi: VirtualMachineInstance, launcher: Launcher) -> None:
        move, vmi = under_way(vmi), volumemoves.at_target(vmi)
        if move is None:
            return
        device_nodes.hand_over(launcher.pid, launcher.pidfd, self.host, volumes=device_nodes.block_volumes(vmi))
        if memlock.needs_locked_memory(vmi):
            memlock.lift(launcher.pid, launcher.pidfd)
        request = pb.PrepareTargetRequest(vmi_json=encode_object(usable(vmi)), options=self.options(session, vmi))
        answer = launcher.prepare_target(request, _LOOK_S)
        cpus = tuple(Cpu(cell=cpu.cell, core=cpu.core, number=cpu.number) for cpu in answer.cpus[:_MAX_CPUS])
        context = self.place.tls().peer_context(server=True)
        address = arrival_address(self.place.address, self.network())
        ends = {channel: self._end(session, channel) for channel in CHANNELS}
        left = {names.SOCKET_MOVE_LIBVIRT: partial(self._left, session, move.migration_uid)}
        way = Exit(context, address, self.place.peer(move.source_node), ends, left)
        self._keep(session, move.migration_uid, way)
        session.prepare_done(Way(move.migration_uid, address, way.ports, cpus))

    def _left(self, session: Session, job: str) -> None:
        """The other side's libvirt is gone: it has got its answer, or lost us."""
        session.way_over(job)
        self.queue.add(session.key)

    def _end(self, session: Session, channel: str) -> Callable[[], socket.socket]:
        def reach() -> socket.socket:
            connected = self._connected(session, channel)
            if self.pod_of(peer_credentials(connected).pid) != session.pod_uid:
                connected.close()
                raise PermissionError(f"{channel} is not a socket of the machine")
            return connected

        return reach

    def _connected(self, session: Session, channel: str) -> socket.socket:
        if channel != names.SOCKET_MOVE_LIBVIRT:
            return self._connect(session, names.VOLUME_SOCKETS, channel)
        for name in _LIBVIRT_SOCKETS:
            with contextlib.suppress(FileNotFoundError):
                return self._connect(session, names.VOLUME_LIBVIRT, name)
        raise FileNotFoundError("libvirt of the target launcher has no socket")

    def _connect(self, session: Session, volume: str, name: str) -> socket.socket:
        fd = self.files.open_socket(session.pod_uid, volume, name)
        try:
            return connect(fd, _CONNECT_S)
        finally:
            os.close(fd)

    # -- the side that it leaves ---------------------------------------------------------------------------------------

    def _migrate(self, session: Session, vmi: VirtualMachineInstance, launcher: Launcher) -> None:
        move = under_way(vmi)
        if move is None:
            return
        with self._lock:
            job, _ = self._ways.get(session.pod_uid, ("", None))
        if job != move.migration_uid:
            self._enter(session, move)
        launcher.migrate(wishes(vmi, move))

    def _look(self, session: Session, vmi: VirtualMachineInstance, launcher: Launcher) -> None:
        facts = launcher.get_disk_facts(encode_object(vmi), _LOOK_S)
        asked = {volume.name for volume in vmi.spec.volumes}
        known = {name: (each.checksum, each.size) for name, each in facts.items() if name in asked}
        # Of a claim's disk the other side compares the size with what its own claim has.
        limits = dict.fromkeys(volumemoves.moving(vmi.status), _MAX_DISK)
        session.look_done({name: each for name, each in known.items() if each[1] <= limits.get(name, _MAX_IMAGE)})

    def _enter(self, session: Session, move: MoveState) -> None:
        """Once for each job: a second one would cut the first, which may be in use already."""
        context = self.place.tls().peer_context(server=False)
        ports = ports_of(move)
        listeners = self._listeners(session, ports)
        peer = self.place.peer(move.target_node)
        way = Entrance(context, move.target_node_address, peer, listeners, ports)
        self._keep(session, move.migration_uid, way)

    def _listeners(self, session: Session, ports: Mapping[str, int]) -> dict[str, socket.socket]:
        directory = self.files.open_volume(session.pod_uid, names.VOLUME_SOCKETS)
        try:
            for channel in ports:
                remove(directory, channel)
            return {channel: make_listener(directory, channel) for channel in ports}
        finally:
            os.close(directory)

    def _keep(self, session: Session, job: str, way: Entrance | Exit) -> None:
        with self._lock:
            former = self._ways.pop(session.pod_uid, None)
            self._ways[session.pod_uid] = (job, way)
        if former is not None:
            former[1].close()


def wishes(vmi: VirtualMachineInstance, move: MoveState) -> pb.MigrateRequest:
    """What libvirt is asked for, from the configuration that was settled when the job was handed over."""
    config = move.migration_configuration or MigrationConfiguration()
    post_copy = bool(config.allow_post_copy)
    disruption = post_copy if config.allow_workload_disruption is None else config.allow_workload_disruption
    return pb.MigrateRequest(
        uid=move.migration_uid,
        vmi_json=encode_object(vmi),
        bandwidth_mib=parse_bytes(config.bandwidth_per_migration or 0) // _MIB,
        auto_converge=bool(config.allow_auto_converge),
        post_copy=post_copy,
        workload_disruption=disruption,
        unsafe=bool(config.unsafe_migration_override),
        completion_timeout_per_gib=max(config.completion_timeout_per_gi_b or 0, 0),
        progress_timeout=max(config.progress_timeout or 0, 0),
        # QEMU knows no post-copy with several connections.
        parallel_connections=0 if post_copy or _is_limited(vmi) else _PARALLEL,
    )


def _is_hopeless(error: RpcFailure | OSError) -> bool:
    return isinstance(error, NotOnNetworkError) or (isinstance(error, RpcFailure) and is_fatal(error))


def _is_limited(vmi: VirtualMachineInstance) -> bool:
    domain = vmi.spec.domain
    return bool(domain.resources.limits.get("cpu")) or bool(domain.cpu and domain.cpu.dedicated_cpu_placement)
