"""The Pod network by CNI plugins: a bridge in the node's network namespace and addresses from the node's ranges."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from virt_core.apis.base import decode, encode
from virt_local.node.layout import write_atomic
from virt_local.node.networks.vocabulary import CNI_VERSION, NetworkError

INTERFACE = "eth0"
_DEADLINE_S = 30.0


class _Address(msgspec.Struct):
    address: str


class _Result(msgspec.Struct):
    ips: list[_Address] = []


class _Failure(msgspec.Struct):
    msg: str = ""
    details: str = ""


@dataclass(frozen=True)
class CniSettings:
    network: str
    bridge: str
    pod_cidrs: tuple[str, ...]
    lease_dir: Path
    plugin_dirs: tuple[str, ...]


def network_config(settings: CniSettings) -> dict[str, Any]:
    return {
        "cniVersion": CNI_VERSION,
        "name": settings.network,
        "type": "bridge",
        "bridge": settings.bridge,
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(settings.lease_dir),
            "ranges": [[{"subnet": cidr}] for cidr in settings.pod_cidrs],
            "routes": [{"dst": "::/0" if ":" in cidr else "0.0.0.0/0"} for cidr in settings.pod_cidrs],
        },
    }


class Cni:
    def __init__(self, settings: CniSettings) -> None:
        self._settings = settings
        self._config = network_config(settings)
        self.plugins = Plugins(settings)

    def add(self, container_id: str, netns: Path, cache: Path) -> list[str]:
        """Connects a namespace; returns its addresses, IPv4 first as configured. The result is kept for `delete`."""
        output = self.plugins.call(Call("ADD", "bridge", container_id, str(netns)), self._config)
        write_atomic(cache, output)
        result = decode(output, _Result)
        return [entry.address.partition("/")[0] for entry in result.ips]

    def delete(self, container_id: str, netns: Path | None, cache: Path | None = None) -> None:
        """Frees addresses and links. Works without the namespace, and twice."""
        config = dict(self._config)
        if cache is not None and cache.exists():
            config["prevResult"] = msgspec.json.decode(cache.read_bytes())
        self.plugins.call(Call("DEL", "bridge", container_id, str(netns or "")), config)
        if cache is not None:
            cache.unlink(missing_ok=True)

    def leases(self) -> set[str]:
        """Who holds an address, by container id: for finding those whose Pod is gone."""
        directory = self._settings.lease_dir / self._settings.network
        found: set[str] = set()
        for path in directory.iterdir() if directory.is_dir() else []:
            if path.name[0].isdigit() or ":" in path.name:
                lines = path.read_text(errors="replace").split()
                found.update(lines[:1])
        return found


@dataclass(frozen=True)
class Call:
    """What a plugin is to do, for whom."""

    command: str
    plugin: str
    container_id: str
    netns: str
    interface: str = INTERFACE
    arguments: str = ""


class Plugins:
    def __init__(self, settings: CniSettings) -> None:
        self.settings = settings

    def call(self, call: Call, config: dict[str, Any]) -> bytes:
        """Raises NetworkError."""
        env = {
            "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            "CNI_COMMAND": call.command,
            "CNI_CONTAINERID": call.container_id,
            "CNI_NETNS": call.netns,
            "CNI_IFNAME": call.interface,
            "CNI_ARGS": call.arguments,
            "CNI_PATH": ":".join(self.settings.plugin_dirs),
        }
        program, words = find_plugin(call.plugin, self.settings.plugin_dirs), f"the CNI plugin {call.plugin}"
        try:
            done = subprocess.run(
                [program], input=encode(config), env=env, capture_output=True, timeout=_DEADLINE_S, check=False
            )
        except subprocess.TimeoutExpired as err:
            raise NetworkError(f"{words} took longer than {_DEADLINE_S:.0f} s to {call.command}") from err
        if done.returncode != 0:
            raise NetworkError(f"{words} failed to {call.command}: {_reason(done.stdout, done.stderr)}")
        return done.stdout


def find_plugin(name: str, directories: Sequence[str]) -> str:
    for directory in directories:
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK):
            return path
    raise NetworkError(f"there is no CNI plugin {name!r} in {' or '.join(directories)}")


def _reason(stdout: bytes, stderr: bytes) -> str:
    try:
        failure = decode(stdout, _Failure)
    except msgspec.DecodeError:
        failure = _Failure()
    text = " ".join(part for part in (failure.msg, failure.details) if part)
    return text or stderr.decode(errors="replace").strip()[-500:] or "no reason given"


def pod_bridge(instance: str) -> str:
    """The bridge that a node's Pods are plugged into, in the node's own namespace."""
    return f"{instance}-cni0"


def pod_bridge_mac(bridge: str) -> str:
    return "02:" + ":".join(hashlib.sha256(bridge.encode()).hexdigest()[i : i + 2] for i in range(0, 10, 2))
