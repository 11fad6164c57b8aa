"""Keeps the device plugins as they should be: served, registered with the kubelet that runs now, and up to date.

One thread, which sleeps until something happens: an entry in the kubelet's directory or in a directory of devices, a
change of the configuration, a stream that comes or goes. sysfs tells nobody of its changes, so it is also looked at
once a minute.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import grpc

from virt_core.kube.configvalues import ClusterConfig
from virt_core.rpc.channel import unix_channel
from virt_core.rpc.status import failure_of
from virt_core.runtime.clock import Clock
from virt_core.runtime.inotify import Inotify
from virt_core.runtime.logs import get_logger
from virt_handler.node.devices.mediator import Mediator
from virt_handler.node.devices.permitted import permitted_pools
from virt_handler.node.devices.plugin import Plugin
from virt_handler.node.devices.shared import Fixed, fixed_devices
from virt_handler.node.devices.units import Host, Pool
from virt_protos.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from virt_protos.deviceplugin.v1beta1.deviceplugin_pb2_grpc import RegistrationStub

log = get_logger(__name__)

API_VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
RESCAN_S = 60.0
#: How long the kubelet may take to open its stream after a registration.
CONNECT_WITHIN_S = 5.0
_REGISTER_TIMEOUT_S = 10.0
#: Directories that come and go all the time must not keep us from the rest.
_ROUNDS = 5
_BACKOFF_S = (1.0, 2.0, 5.0, 10.0)


class DeviceManager:
    def __init__(
        self,
        directory: str,
        config: Callable[[], ClusterConfig],
        clock: Clock,
        host: Host | None = None,
        readiness_changed: Callable[[], object] = lambda: None,
    ) -> None:
        self._directory, self._config, self._clock = directory, config, clock
        self._host = host or Host()
        self.readiness_changed = readiness_changed
        self.mediator = Mediator(self._host, clock, directory)
        self._fixed = fixed_devices(self._host, config)
        self._plugins: dict[str, Plugin] = {}
        self._permitted: object = None
        self._failures = 0
        self._fd = -1
        self._ready = False
        self._watched: dict[str, int] = {}
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ready(self) -> bool:
        """Whether the kubelet knows of every device that machines need and this node has."""
        return self._ready

    def wake(self) -> None:
        """Something may have changed. From any thread."""
        os.eventfd_write(self._wake_fd, 1)

    def run(self, stop: threading.Event) -> None:
        waker = threading.Thread(target=self._wake_on, args=(stop,), name="devices-stop", daemon=True)
        waker.start()
        with Inotify() as inotify:
            while not stop.is_set():
                wait_s = self._pass(inotify)
                self._sleep(inotify, wait_s)
        waker.join()
        self._close()

    def _wake_on(self, stop: threading.Event) -> None:
        stop.wait()
        self.wake()

    def _sleep(self, inotify: Inotify, seconds: float) -> None:
        inotify.wait(seconds, self._wake_fd)
        try:
            os.eventfd_read(self._wake_fd)
        except BlockingIOError:
            pass

    def _pass(self, inotify: Inotify) -> float:
        """Brings everything up to date once. Seconds until the next look that no event announces.

        Watched before it is looked at, so that what comes in between wakes us; and a directory that was not watched
        before may have got its devices just before it was, so then it is looked at once more.
        """
        due_s = self.mediator.settle(self._config())
        for _ in range(_ROUNDS):
            known = dict(self._watched)
            self._watch(inotify)
            self._choose()
            if self._watched == known:
                break
        for plugin in self._plugins.values():
            plugin.look()
        wait_s = self._connect()
        self._judge()
        return min(wait_s, RESCAN_S, RESCAN_S if due_s is None else due_s)

    def _choose(self) -> None:
        """A fixed device counts from the moment that it is usable; then its absence is a fault, which is told."""
        config = self._config()
        if config.permitted_host_devices != self._permitted:
            self._permitted = config.permitted_host_devices
            self._permit(permitted_pools(config, self._host, self.mediator.withheld))
        for device in self._fixed:
            open_to_guests = device.allowed(config)
            if device.resource in self._plugins and not open_to_guests:
                self._drop(device.resource)
            elif device.resource not in self._plugins and open_to_guests and device.usable:
                self._add(device)

    def _permit(self, pools: dict[str, Pool]) -> None:
        """All anew, also those that stay: the selectors of a resource may be others now."""
        for resource in [key for key in self._plugins if not self._is_fixed(key)]:
            self._drop(resource)
        for pool in pools.values():
            self._add(pool)

    def _drop(self, resource: str) -> None:
        log.info("a resource is not offered any more", resource=resource)
        self._plugins.pop(resource).close(self._fd)

    def _is_fixed(self, resource: str) -> bool:
        return any(device.resource == resource for device in self._fixed)

    def _add(self, pool: Pool) -> None:
        self._plugins[pool.resource] = Plugin(pool, self.wake)

    def _watch(self, inotify: Inotify) -> None:
        pools: list[Pool | Fixed] = [*self._fixed, *(plugin.pool for plugin in self._plugins.values())]
        wanted = {directory for pool in pools for path in pool.paths() for directory in self._host.directories_of(path)}
        wanted.add(self._directory)
        for directory in wanted:
            try:
                # The same again for a directory that is watched already, a new one if it was made anew.
                self._watched[directory] = inotify.watch(directory)
            except OSError as error:
                log.debug("a directory cannot be watched", directory=directory, error=str(error))
        for directory in [known for known in self._watched if known not in wanted]:
            inotify.unwatch(self._watched.pop(directory))

    def _connect(self) -> float:
        """Serves and registers what needs it. Seconds until the next try, if one is due."""
        kubelet = self._find_kubelet()
        if kubelet is None:
            return RESCAN_S
        try:
            for plugin in self._plugins.values():
                plugin.ensure_served(self._fd)
                if self._must_register(plugin, kubelet):
                    self._register(plugin, kubelet)
        except (OSError, grpc.RpcError) as error:
            wait_s = _BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)]
            self._failures += 1
            reason = str(failure_of(error)) if isinstance(error, grpc.RpcError) else str(error)
            log.warning("the kubelet did not take a device plugin", error=reason, retry_s=wait_s)
            return wait_s
        self._failures = 0
        silent = any(not plugin.servicer.connected for plugin in self._plugins.values())
        return CONNECT_WITHIN_S if silent else RESCAN_S

    def _find_kubelet(self) -> object:
        """What tells one kubelet from the next: the identity of its socket. None while there is none."""
        try:
            self._open_directory()
            found = os.stat(KUBELET_SOCKET, dir_fd=self._fd, follow_symlinks=False)
        except OSError as error:
            log.info("waiting for the kubelet", directory=self._directory, error=str(error))
            return None
        return found.st_ino, found.st_ctime_ns

    def _open_directory(self) -> None:
        """Held open; a directory that was made anew under the same name is another one."""
        now = os.stat(self._directory)
        if self._fd >= 0:
            held = os.fstat(self._fd)
            if (held.st_dev, held.st_ino) == (now.st_dev, now.st_ino):
                return
            for plugin in self._plugins.values():
                plugin.close(self._fd)
            self._plugins = {key: Plugin(plugin.pool, self.wake) for key, plugin in self._plugins.items()}
            os.close(self._fd)
            for plugin in self._plugins.values():
                plugin.look()
        self._fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _must_register(self, plugin: Plugin, kubelet: object) -> bool:
        if plugin.registered != kubelet:
            return True
        late = self._clock.monotonic() - plugin.registered_at >= CONNECT_WITHIN_S
        return late and not plugin.servicer.connected

    def _register(self, plugin: Plugin, kubelet: object) -> None:
        request = pb.RegisterRequest(
            version=API_VERSION,
            endpoint=plugin.endpoint,
            resource_name=plugin.pool.resource,
            options=pb.DevicePluginOptions(),
        )
        with unix_channel(f"/proc/self/fd/{self._fd}/{KUBELET_SOCKET}") as channel:
            RegistrationStub(channel).Register(request, timeout=_REGISTER_TIMEOUT_S)
        plugin.registered, plugin.registered_at = kubelet, self._clock.monotonic()
        log.info("registered with the kubelet", resource=plugin.pool.resource, socket=plugin.endpoint)

    def _judge(self) -> None:
        common = [device.resource for device in self._fixed if device.common and device.resource in self._plugins]
        ready = bool(common) and all(self._plugins[key].servicer.connected for key in common)
        if ready != self._ready:
            self._ready = ready
            log.info("device plugins", ready=ready)
            self.readiness_changed()

    def _close(self) -> None:
        for plugin in self._plugins.values():
            plugin.close(self._fd)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
