"""One device plugin: a socket in the kubelet's directory that tells the units of one pool and hands them out.

It is registered by the manager; the kubelet then calls back and keeps one ListAndWatch stream open. That stream is how
we know that the kubelet knows us.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from virt_core.rpc.server import RpcServer, serve_unix
from virt_core.rpc.status import failed_precondition
from virt_core.runtime.logs import get_logger
from virt_handler.node.devices.units import Allotment, Pool, Unit, UnitGoneError
from virt_protos.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from virt_protos.deviceplugin.v1beta1 import deviceplugin_pb2_grpc as pb_grpc

log = get_logger(__name__)

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
#: The launcher has no right to make device nodes, so it needs no `m`.
PERMISSIONS = "rw"
#: A stream that nobody ends looks after itself this often.
_LOOK_S = 30.0


def socket_name(resource: str) -> str:
    domain, _, name = resource.rpartition("/")
    plain = name if domain == "devices.kubevirt.io" else resource.replace("/", "-")
    return f"kubevirt-{plain}.sock"


class PluginServicer(pb_grpc.DevicePluginServicer):
    def __init__(self, pool: Pool, streams_changed: Callable[[], object]) -> None:
        self._pool, self._streams_changed = pool, streams_changed
        self._changed = threading.Condition()
        self._units: list[Unit] = []
        self._version = 0
        self._streams = 0
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether somebody listens to what we tell."""
        return self._streams > 0

    def publish(self, units: list[Unit]) -> bool:
        """True: that was news."""
        with self._changed:
            if self._version and units == self._units:
                return False
            self._units, self._version = units, self._version + 1
            self._changed.notify_all()
            return True

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def GetDevicePluginOptions(self, _request: pb.Empty, _context: grpc.ServicerContext) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions()

    def ListAndWatch(self, _request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        context.add_callback(self._wake)
        self._count(+1)
        try:
            told = 0
            while (units := self._news(told, context)) is not None:
                told, devices = units[0], [_device(unit) for unit in units[1]]
                yield pb.ListAndWatchResponse(devices=devices)
        finally:
            self._count(-1)

    def _news(self, told: int, context: grpc.ServicerContext) -> tuple[int, list[Unit]] | None:
        """What the stream has not told yet; None when it is over."""
        with self._changed:
            while context.is_active() and not self._closed:
                if self._version != told:
                    return self._version, self._units
                self._changed.wait(_LOOK_S)
        return None

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _count(self, change: int) -> None:
        with self._changed:
            self._streams += change
        self._streams_changed()

    def Allocate(self, request: pb.AllocateRequest, _context: grpc.ServicerContext) -> pb.AllocateResponse:
        try:
            allotments = [self._pool.allot(each.devices_ids) for each in request.container_requests]
        except UnitGoneError as error:
            raise failed_precondition(str(error)) from error
        return pb.AllocateResponse(container_responses=[_answer(each) for each in allotments])

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, _context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        """Any will do, beginning with those that it must be."""
        responses = [_preferred(each) for each in request.container_requests]
        return pb.PreferredAllocationResponse(container_responses=responses)

    def PreStartContainer(
        self, _request: pb.PreStartContainerRequest, _context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        return pb.PreStartContainerResponse()


def _device(unit: Unit) -> pb.Device:
    device = pb.Device(id=unit.id, health=HEALTHY if unit.healthy else UNHEALTHY)
    if unit.numa is not None:
        device.topology.nodes.add(id=unit.numa)
    return device


def _answer(allotment: Allotment) -> pb.ContainerAllocateResponse:
    devices = [pb.DeviceSpec(container_path=node, host_path=node, permissions=PERMISSIONS) for node in allotment.nodes]
    mounts = [pb.Mount(host_path=outer, container_path=inner, read_only=True) for outer, inner in allotment.mounts]
    return pb.ContainerAllocateResponse(envs=allotment.env, devices=devices, mounts=mounts)


def _preferred(request: pb.ContainerPreferredAllocationRequest) -> pb.ContainerPreferredAllocationResponse:
    order = dict.fromkeys([*request.must_include_device_ids, *sorted(request.available_device_ids)])
    return pb.ContainerPreferredAllocationResponse(device_ids=list(order)[: request.allocation_size])


class Plugin:
    """The servicer with its socket. Only the manager's thread calls it."""

    def __init__(self, pool: Pool, streams_changed: Callable[[], object]) -> None:
        self.pool = pool
        self.endpoint = socket_name(pool.resource)
        self.servicer = PluginServicer(pool, streams_changed)
        #: The kubelet that we have registered with, and when.
        self.registered: object = None
        self.registered_at = 0.0
        self._server: RpcServer | None = None
        self._inode: int | None = None

    def look(self) -> None:
        units = self.pool.look()
        if self.servicer.publish(units):
            healthy = sum(unit.healthy for unit in units)
            log.info("the devices of a resource", resource=self.pool.resource, units=len(units), healthy=healthy)

    def ensure_served(self, directory: int) -> None:
        """A kubelet that starts clears its directory, so our socket may be gone while we still listen on it."""
        if self._server is not None and self._inode == _inode(directory, self.endpoint):
            return
        self._stop()
        _unlink(directory, self.endpoint)
        servicer: Any = self.servicer
        self._server = serve_unix(
            self.endpoint,
            [lambda server: pb_grpc.add_DevicePluginServicer_to_server(servicer, server)],
            dir_fd=directory,
            workers=4,
            name=self.endpoint,
        )
        self._inode = _inode(directory, self.endpoint)
        self.registered = None

    def close(self, directory: int) -> None:
        self.servicer.close()
        served = self._inode is not None and self._inode == _inode(directory, self.endpoint)
        self._stop()
        if served:
            _unlink(directory, self.endpoint)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop(0)
            self._server = None


def _inode(directory: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def _unlink(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
