"""From a NetworkAttachmentDefinition to the configuration that a CNI plugin gets. Pure.

Who may write one in a namespace is not root on the machine, and plugins are. So only what is known here gets through:
two types of plugins, the fields below, no path of the node, no address or route on it. Bridges and masters are the
namespace's own: their names are turned into names of links that nothing else has.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable
from typing import Any

import msgspec

from virt_local.node.networks.vocabulary import CNI_VERSION, NetworkError

Config = dict[str, Any]

#: Rules of the node know the links of these networks by it.
LINK_PREFIX = "nad-"
SHARED_NAMESPACE = "default"
_MOST_BYTES = 1 << 16
_LINK = re.compile(r"[A-Za-z0-9._-]{1,15}")
_MODES = ("bridge", "private", "vepa")
_MOST_MTU = 65535
_MOST_ENTRIES = 16


def link_name(namespace: str, name: str) -> str:
    return LINK_PREFIX + hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:10]


def plugin_config(namespace: str, name: str, text: str, lease_dir: str) -> Config:
    """Raises NetworkError with the field that is not allowed."""
    given = _one_plugin(_parsed(text))
    kind = given.get("type", "")
    fields = _TYPES.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise NetworkError(f"the plugin {kind!r} is not one of {', '.join(_TYPES)}, which virt-local runs")
    config = _checked(given, fields, "")
    _name_link(config, namespace)
    if ipam := config.get("ipam"):
        config["ipam"] = _ipam(ipam, lease_dir)
    else:
        config["ipam"] = {}
    return config | {"cniVersion": CNI_VERSION, "name": f"{namespace}.{name}"}


def _parsed(text: str) -> Config:
    if len(text) > _MOST_BYTES:
        raise NetworkError(f"its config is longer than {_MOST_BYTES} bytes")
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise NetworkError(f"its config is no JSON object: {error}") from error
    return found


def _one_plugin(config: Config) -> Config:
    if "plugins" not in config:
        return config
    plugins = config["plugins"]
    if not isinstance(plugins, list) or len(plugins) != 1 or not isinstance(plugins[0], dict):
        raise NetworkError("plugins must have exactly one entry: virt-local runs no chain of plugins")
    return plugins[0]


def _checked(given: Config, fields: dict[str, Callable[[Any], bool]], path: str) -> Config:
    """A field that is false or empty asks for nothing."""
    kept: Config = {}
    for name, value in given.items():
        if value in (False, None, "", 0, [], {}) or (not path and name in ("cniVersion", "name")):
            continue
        check = fields.get(name)
        if check is None:
            raise NetworkError(f"{path}{name} is not allowed; there are {', '.join(fields)}")
        if not check(value):
            raise NetworkError(f"{path}{name} is not as expected: {str(value)[:80]!r}")
        kept[name] = value
    return kept


def _name_link(config: Config, namespace: str) -> None:
    if config["type"] == "bridge":
        config["bridge"] = link_name(namespace, config.get("bridge", "cni0"))
    elif "master" not in config:
        raise NetworkError("master must be given")
    else:
        config["master"] = link_name(namespace, config["master"])


def _ipam(given: Config, lease_dir: str) -> Config:
    kind = given.get("type", "")
    fields = _IPAMS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise NetworkError(f"ipam.type {kind!r} is not one of {', '.join(_IPAMS)}")
    ipam = _checked(given, fields, "ipam.")
    return ipam | {"dataDir": lease_dir} if kind == "host-local" else ipam


def _text(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and bool(pattern.fullmatch(value))


def _number(most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and 0 < value <= most


def _parses(parse: Callable[[str], object]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        try:
            return isinstance(value, str) and parse(value) is not None
        except ValueError:
            return False

    return check


def _entries(fields: dict[str, Callable[[Any], bool]]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return (
            isinstance(value, list)
            and len(value) <= _MOST_ENTRIES
            and all(isinstance(each, dict) and each.keys() <= fields.keys() for each in value)
            and all(fields[key](entry) for each in value for key, entry in each.items())
        )

    return check


def _ranges(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_ENTRIES and all(_entries(_RANGE)(each) for each in value)


def _is_true(value: Any) -> bool:
    return value is True


_network = _parses(lambda text: ipaddress.ip_network(text, strict=False))
_address = _parses(ipaddress.ip_address)
_RANGE = {"subnet": _network, "rangeStart": _address, "rangeEnd": _address, "gateway": _address}
_ROUTES = _entries({"dst": _network, "gw": _address})


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_type(value: Any) -> bool:
    return isinstance(value, str)


_TYPES: dict[str, dict[str, Callable[[Any], bool]]] = {
    "bridge": {
        "type": _is_type,
        "bridge": _text(_LINK),
        "mtu": _number(_MOST_MTU),
        "vlan": _number(4094),
        "hairpinMode": _is_true,
        "macspoofchk": _is_true,
        "ipam": _is_object,
    },
    "macvlan": {
        "type": _is_type,
        "master": _text(_LINK),
        "mode": lambda value: value in _MODES,
        "mtu": _number(_MOST_MTU),
        "ipam": _is_object,
    },
}
_IPAMS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "host-local": {"type": _is_type, "ranges": _ranges, "routes": _ROUTES, **_RANGE},
    "static": {
        "type": _is_type,
        "addresses": _entries({"address": _parses(ipaddress.ip_interface), "gateway": _address}),
        "routes": _ROUTES,
    },
}
