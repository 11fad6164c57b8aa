"""The cluster's configuration while it changes: watches the KubeVirt object, hands out the last good snapshot.

    watcher = ConfigWatcher(client, namespace)
    watcher.on_change(lambda config: …)     # at once and after each change
    supervisor.thread("config", watcher.run)
    watcher.current().has("HostDisk")       # never blocks, never fails

Take one snapshot for one piece of work, so that it does not see half of a change. Without a KubeVirt object the
built-in defaults hold, with emulation where there is no KVM.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.kubevirt import KubeVirt
from virt_core.kube.client import KubeClient
from virt_core.kube.configmerge import Flaw, InvalidConfigurationError, effective, find_flaws
from virt_core.kube.configvalues import (
    EXPAND,
    EXPAND_ALL,
    REFERENCE,
    UNCONFIGURED,
    ClusterConfig,
    MigrationLimits,
    SMBios,
    host_architecture,
)
from virt_core.kube.informer import Informer
from virt_core.runtime.logs import LEVELS, get_logger, set_level

__all__ = [
    "CONFIG_VERSION",
    "EXPAND",
    "EXPAND_ALL",
    "REFERENCE",
    "UNCONFIGURED",
    "ClusterConfig",
    "ConfigState",
    "ConfigWatcher",
    "Flaw",
    "InvalidConfigurationError",
    "MigrationLimits",
    "SMBios",
    "effective",
    "find_flaws",
    "follow_log_level",
    "host_architecture",
]

log = get_logger(__name__)

#: In the health pages of all components.
CONFIG_VERSION = "config-resource-version"

Listener = Callable[[ClusterConfig], object]


@dataclass(frozen=True, slots=True)
class ConfigState:
    """The snapshot that holds, where it comes from, and why a newer one does not."""

    config: ClusterConfig
    source: KubeVirt | None = None  #: The object as it is now, good or bad.
    problem: str = ""  #: Why its configuration does not hold.
    version: str = "0"  #: The resourceVersion of the object whose configuration holds; 0: there is none.


def chosen(objects: Iterable[KubeVirt]) -> KubeVirt | None:
    """There should be one; of several the oldest holds."""
    return min(objects, key=lambda kv: (kv.metadata.creation_timestamp or "", kv.metadata.name), default=None)


def next_state(state: ConfigState, source: KubeVirt | None, base: ClusterConfig | None = None) -> ConfigState:
    """What holds once the object is as it is now. A configuration that cannot work leaves the last good one."""
    if source is None:
        return ConfigState(replace(base, use_emulation=True) if base else UNCONFIGURED)
    configuration = source.spec.configuration if source.spec else None
    parity = source.metadata.annotations.get(names.ANNOTATION_EVEN_PARITY)
    try:
        config = effective(to_plain(configuration) if configuration else None, base)
        return ConfigState(replace(config, even_parity=parity), source, version=source.metadata.resource_version)
    except InvalidConfigurationError as error:
        return ConfigState(state.config, source, str(error), state.version)


class ConfigWatcher:
    """Thread safe. `base` replaces the built-in defaults (tests)."""

    def __init__(self, client: KubeClient, namespace: str, base: ClusterConfig | None = None) -> None:
        self._base = base
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._state = next_state(ConfigState(UNCONFIGURED), None, base)
        self._informer = Informer(client, KubeVirt, namespace)
        self._informer.add_handler(lambda _: self._look(), lambda _old, _new: self._look(), lambda _: self._look())

    def current(self) -> ClusterConfig:
        return self._state.config

    def state(self) -> ConfigState:
        return self._state

    def health(self) -> str:
        """A page of health in JSON. Who has changed the configuration waits until every component shows its version."""
        return json.dumps({"status": "ok", CONFIG_VERSION: self._state.version})

    @property
    def informer(self) -> Informer[KubeVirt]:
        """The object itself, for who writes its status."""
        return self._informer

    def has_synced(self) -> bool:
        return self._informer.has_synced()

    def on_change(self, listener: Listener) -> None:
        """Called at once and after each change, one call at a time; must be quick."""
        with self._lock:
            self._listeners.append(listener)
            self._tell(listener)

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop."""
        self._informer.run(stop)

    def _look(self) -> None:
        with self._lock:
            old, self._state = self._state, next_state(self._state, chosen(self._informer.list()), self._base)
            if self._state.problem and self._state.problem != old.problem:
                log.error("the configuration is not taken over; the last good one holds", problem=self._state.problem)
            if self._state.config != old.config:
                log.info("the configuration changed")
                for listener in self._listeners:
                    self._tell(listener)

    def _tell(self, listener: Listener) -> None:
        try:
            listener(self._state.config)
        except Exception:
            # One bad listener must not keep the change from the others.
            log.exception("a listener of the configuration failed")


def follow_log_level(watcher: ConfigWatcher, component: str, flag: str, node: str = "") -> None:
    """Sets this process's log level now and with each change; without a word in the configuration the flag's holds."""

    before = flag

    def apply(config: ClusterConfig) -> None:
        nonlocal before
        wanted = config.log_level(component, node) or flag
        level = wanted if wanted in LEVELS else flag
        if level != before:
            log.warning(f"the log level is now {level}")
            set_level(level)
            before = level

    watcher.on_change(apply)
