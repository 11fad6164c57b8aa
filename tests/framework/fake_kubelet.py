"""A kubelet, as far as device plugins see it: takes registrations, listens to the plugins, asks for devices."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import grpc

from virt_core.rpc.channel import unix_channel
from virt_core.rpc.server import RpcServer, serve_unix
from virt_core.rpc.status import unavailable
from virt_protos.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from virt_protos.deviceplugin.v1beta1 import deviceplugin_pb2_grpc as pb_grpc


class FakeKubelet(pb_grpc.RegistrationServicer):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: Registrations to refuse before one is taken.
        self.refusals = 0
        self.registrations: list[str] = []
        self.devices: dict[str, dict[str, str]] = {}
        self.topology: dict[str, dict[str, list[int]]] = {}
        self._channels: dict[str, grpc.Channel] = {}
        self._server: RpcServer | None = None
        self._fd = -1

    def start(self) -> None:
        """As the real one: whatever lies in its directory is removed first."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for entry in self.directory.iterdir():
            entry.unlink()
        self.devices = {}
        self._fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        register = [lambda server: pb_grpc.add_RegistrationServicer_to_server(self, server)]
        self._server = serve_unix("kubelet.sock", register, dir_fd=self._fd, workers=2)

    def stop(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()
        if self._server is not None:
            self._server.stop(0)
            self._server = None
            os.close(self._fd)

    def Register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:
        assert request.version == "v1beta1"
        if self.refusals:
            self.refusals -= 1
            raise unavailable("not now")
        self.registrations.append(request.resource_name)
        channel = unix_channel(f"/proc/self/fd/{self._fd}/{request.endpoint}")
        grpc.channel_ready_future(channel).result(5)
        if (old := self._channels.pop(request.resource_name, None)) is not None:
            old.close()
        self._channels[request.resource_name] = channel
        listener = threading.Thread(target=self._listen, args=(request.resource_name, channel), daemon=True)
        listener.start()
        return pb.Empty()

    def _listen(self, resource: str, channel: grpc.Channel) -> None:
        try:
            for answer in self._plugin(resource).ListAndWatch(pb.Empty()):
                self.devices[resource] = {device.id: device.health for device in answer.devices}
                self.topology[resource] = {d.id: [node.id for node in d.topology.nodes] for d in answer.devices}
        except (grpc.RpcError, KeyError):
            pass
        if self._channels.get(resource) is channel:
            # The plugin is gone: nothing of it can be given to anybody.
            self.devices[resource] = {}

    def healthy(self, resource: str) -> list[str]:
        return [key for key, health in dict(self.devices.get(resource, {})).items() if health == "Healthy"]

    def options(self, resource: str) -> pb.DevicePluginOptions:
        answer: pb.DevicePluginOptions = self._plugin(resource).GetDevicePluginOptions(pb.Empty())
        return answer

    def allocate(self, resource: str, *ids: str) -> pb.ContainerAllocateResponse:
        request = pb.AllocateRequest()
        request.container_requests.add(devices_ids=ids)
        answer: pb.AllocateResponse = self._plugin(resource).Allocate(request, timeout=5)
        (only,) = answer.container_responses
        return only

    def _plugin(self, resource: str) -> Any:
        return pb_grpc.DevicePluginStub(self._channels[resource])
