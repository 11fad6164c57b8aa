"""Connects Pods to the networks that they ask for, also while they run, and writes down what they have.

The record is made before a plugin is called: whoever comes after a crash knows what may have to be taken back, and how.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from virt_core.apis.base import Struct
from virt_core.apis.podnetworks import PRIMARY, Attached, NetworkAttachmentDefinition, Selection
from virt_core.apis.pods import Pod
from virt_core.runtime.logs import get_logger
from virt_local.node import kernel
from virt_local.node.cni import Call, Plugins
from virt_local.node.layout import NodeLayout, load, save
from virt_local.node.networks.definition import plugin_config
from virt_local.node.networks.requests import requested
from virt_local.node.networks.vocabulary import NetworkError

log = get_logger(__name__)

_FILE = "networks.json"


class Definitions(Protocol):
    def network(self, namespace: str, name: str) -> NetworkAttachmentDefinition | None:
        """Raises NetworkError when it cannot be read."""
        ...


class Held(Struct):
    """A network that a Pod has, or was about to get when we stopped."""

    asked: Selection
    config: dict[str, Any]
    result: dict[str, Any] = {}


class PodNetworks:
    def __init__(self, layout: NodeLayout, plugins: Plugins, definitions: Definitions | None = None) -> None:
        """Without definitions networks can only be taken back."""
        self._layout, self._plugins, self._definitions = layout, plugins, definitions

    def follow(self, pod: Pod) -> None:
        """Brings the Pod what it asks for and takes what it does not ask for any more. Raises NetworkError; what could
        be done is done, and told by `told`."""
        uid, wanted = pod.metadata.uid, requested(pod)
        held = self._load(uid)
        if not wanted and not held:
            return
        failures: list[str] = []
        for each in [each for each in held if each.asked not in wanted or not each.result]:
            self._attempt(failures, each.asked, lambda each=each: self._remove(uid, each))
        have = [each.asked for each in self._load(uid)]
        for asked in [each for each in wanted if each not in have]:
            self._attempt(failures, asked, lambda asked=asked: self._add(uid, asked))
        if failures:
            raise NetworkError("; ".join(failures))

    def told(self, pod: Pod, ips: list[str]) -> str:
        """The annotation that says what the Pod has; empty for one that has its own network only."""
        held = [each for each in self._load(pod.metadata.uid) if each.result]
        if not held:
            return ""
        own = Attached(name=self._plugins.settings.network, interface=PRIMARY, ips=ips, default=True)
        return msgspec.json.encode([own, *map(_attached, held)]).decode()

    def detach(self, uid: str) -> None:
        """Takes all back, also when the namespace is gone. Safe to repeat."""
        for each in self._load(uid):
            self._remove(uid, each)

    @staticmethod
    def _attempt(failures: list[str], asked: Selection, work: Any) -> None:
        """One network that cannot be had does not keep the others from the Pod."""
        try:
            work()
        except NetworkError as error:
            failures.append(f"network {asked.key}: {error}")

    def _add(self, uid: str, asked: Selection) -> None:
        found = self._definitions.network(asked.namespace, asked.name) if self._definitions is not None else None
        if found is None:
            raise NetworkError("there is no such NetworkAttachmentDefinition")
        config = plugin_config(asked.namespace, asked.name, found.spec.config, str(self._layout.ipam))
        if master := config.get("master"):
            _make_segment(master)
        held = Held(asked=asked, config=config)
        self._keep(uid, [*self._load(uid), held])
        try:
            output = self._plugins.call(self._call("ADD", uid, held), config)
        except NetworkError:
            self._remove(uid, held)
            raise
        held.result = msgspec.json.decode(output)
        self._keep(uid, [*(each for each in self._load(uid) if each.asked != asked), held])
        log.info("connected a Pod to a network", uid=uid, network=asked.key, interface=asked.interface)

    def _remove(self, uid: str, held: Held) -> None:
        config = held.config | ({"prevResult": held.result} if held.result else {})
        self._plugins.call(self._call("DEL", uid, held), config)
        self._keep(uid, [each for each in self._load(uid) if each.asked != held.asked])

    def _call(self, command: str, uid: str, held: Held) -> Call:
        netns = self._layout.netns(uid)
        there = bool(kernel.mounts_below(netns))
        arguments = f"IgnoreUnknown=1;MAC={held.asked.mac}" if held.asked.mac else ""
        return Call(
            command,
            held.config["type"],
            uid,
            str(netns) if there else "",
            interface=held.asked.interface,
            arguments=arguments,
        )

    def _load(self, uid: str) -> list[Held]:
        try:
            return load(self._layout.sandbox(uid) / _FILE, list[Held])
        except FileNotFoundError:
            return []

    def _keep(self, uid: str, held: list[Held]) -> None:
        path = self._layout.sandbox(uid) / _FILE
        if held:
            save(path, held)
        else:
            path.unlink(missing_ok=True)


def _make_segment(name: str) -> None:
    """A macvlan needs a link below it: a bridge of its own, which leads nowhere else. Its tools are slow to load."""
    from virt_local.up import links
    from virt_local.up.errors import NetworkError as LinkError

    try:
        links.establish(links.Layout(bridges=(links.Bridge(name),), up=(name,)))
    except LinkError as error:
        raise NetworkError(str(error)) from error


def _attached(held: Held) -> Attached:
    result = held.result
    inside = [each for each in result.get("interfaces") or [] if each.get("sandbox")]
    return Attached(
        name=held.asked.key,
        interface=held.asked.interface,
        ips=[each["address"].partition("/")[0] for each in result.get("ips") or []],
        mac=inside[0].get("mac", "") if inside else "",
        mtu=inside[0].get("mtu", 0) if inside else 0,
    )
