"""Bindings that the cluster's configuration names (`network.binding`): what each says of itself, and which row of the
table of bindings follows from it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from virt_core.apis.base import from_plain
from virt_core.apis.bindings import ATTACHMENTS, MOVES_IF_TOLD, PLUGIN, Binding, binding_of, row_of
from virt_core.apis.configuration import InterfaceBindingPlugin
from virt_core.apis.interfaces import Interface
from virt_core.apis.quantity import QuantityError, parse_bytes, parse_quantity
from virt_core.apis.vmi import VirtualMachineInstanceSpec

#: After a move the guest sees its link go and come, and asks the network for its address again.
LINK_REFRESH = "link-refresh"
METHODS = ("", LINK_REFRESH)
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DEFINITION = re.compile(rf"({_LABEL}/)?{_LABEL}(\.{_LABEL})*")

Configured = Mapping[str, Any]
NO_PLUGINS: Configured = MappingProxyType({})


def plugin_of(interface: Interface, configured: Configured) -> InterfaceBindingPlugin | None:
    """What the cluster says of the plugin that it names; None if it names none, or one that nobody knows."""
    if interface.binding is None or interface.binding.name not in configured:
        return None
    return from_plain(configured[interface.binding.name] or {}, InterfaceBindingPlugin)


def row(interface: Interface, configured: Configured) -> Binding | None:
    """The row of the table that holds for a NIC; None for one without a binding, or with a plugin nobody knows."""
    plugin = plugin_of(interface, configured)
    if binding_of(interface) == PLUGIN and plugin is None:
        return None
    return row_of(binding_of(interface), plugin.domain_attachment_type if plugin is not None else "")


def used(spec: VirtualMachineInstanceSpec, configured: Configured) -> dict[str, InterfaceBindingPlugin]:
    """The plugins of a machine by name, each once, in the order of its NICs."""
    found: dict[str, InterfaceBindingPlugin] = {}
    for nic in spec.domain.devices.interfaces:
        if nic.binding is not None and (plugin := plugin_of(nic, configured)) is not None:
            found.setdefault(nic.binding.name, plugin)
    return found


def unknown(spec: VirtualMachineInstanceSpec, configured: Configured) -> Iterator[tuple[str, str]]:
    """Path below the spec, and the sentence, for each NIC whose plugin the cluster does not name."""
    for index, nic in enumerate(spec.domain.devices.interfaces):
        if nic.binding is not None and nic.binding.name not in configured:
            known = ", ".join(sorted(configured)) or "none"
            words = f"the cluster has no network binding plugin {nic.binding.name!r}; it has {known}"
            yield f"domain.devices.interfaces[{index}].binding.name", words


def memory_of(spec: VirtualMachineInstanceSpec, configured: Configured) -> int:
    """Bytes that its plugins need in the launcher, each counted once."""
    overheads = (plugin.compute_resource_overhead for plugin in used(spec, configured).values())
    return sum(parse_bytes(each.requests.get("memory", 0)) for each in overheads if each is not None)


def moves(interface: Interface, configured: Configured) -> bool:
    """Whether its plugin says how a machine with such a NIC moves. True for what is no plugin's."""
    plugin, known = plugin_of(interface, configured), row(interface, configured)
    return known is not None and (known.moves != MOVES_IF_TOLD or (plugin is not None and plugin.migration is not None))


def refreshes_link(interface: Interface, configured: Configured) -> bool:
    plugin = plugin_of(interface, configured)
    return plugin is not None and plugin.migration is not None and plugin.migration.method == LINK_REFRESH


def flaws(configured: Configured) -> Iterator[tuple[str, str]]:
    """What cannot work in the configuration: path below `network.binding`, and the sentence."""
    for name, given in configured.items():
        plugin = from_plain(given or {}, InterfaceBindingPlugin)
        for field, fault in _faults(plugin):
            yield f"{name}.{field}", fault


def _faults(plugin: InterfaceBindingPlugin) -> Iterator[tuple[str, str]]:
    kind, method = plugin.domain_attachment_type, plugin.migration.method if plugin.migration is not None else ""
    if kind not in ATTACHMENTS:
        yield "domainAttachmentType", f"{kind!r} is not one of tap, managedTap"
    if not kind and not plugin.sidecar_image:
        yield "domainAttachmentType", "without it the NIC is the sidecar's to make, and there is no sidecarImage"
    if method not in METHODS:
        yield "migration.method", f"{method!r} is not {LINK_REFRESH}"
    if plugin.downward_api:
        yield "downwardAPI", "device information for a network binding plugin is not built yet"
    definition = plugin.network_attachment_definition
    if definition and not _DEFINITION.fullmatch(definition):
        yield "networkAttachmentDefinition", f"{definition!r} is neither name nor namespace/name of one"
    overhead = plugin.compute_resource_overhead
    amount = overhead.requests.get("memory") if overhead is not None else None
    try:
        if amount is not None and parse_quantity(amount) < 0:
            yield "computeResourceOverhead.requests.memory", f"must not be negative, but is {amount}"
    except QuantityError as error:
        yield "computeResourceOverhead.requests.memory", str(error)
