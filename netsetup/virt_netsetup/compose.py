"""From a plan and the Pod's NIC to a list of steps and the report. Pure: it asks nobody and changes nothing."""

from __future__ import annotations

import ipaddress
import re

from virt_core.apis.bindings import BRIDGE, MANAGED_TAP, MASQUERADE, PASST, SIDECAR, TAP
from virt_core.apis.netplan import NetDhcpOptions, NetPlan, NetPlanInterface
from virt_netsetup.bindings import bridge, masquerade, passt, plugin
from virt_netsetup.bindings.wiring import Wiring
from virt_netsetup.dhcpserver import MAX_OPTION
from virt_netsetup.model import NetsetupError, PodNic, Record
from virt_netsetup.steps import Step

#: For each row of virt_core.apis.bindings that is wired: how it is set up, and how it is taken down.
_BINDINGS = {
    MASQUERADE: (masquerade.setup, masquerade.teardown),
    BRIDGE: (bridge.setup, bridge.teardown),
    MANAGED_TAP: (bridge.managed_tap, bridge.teardown),
    PASST: (passt.setup, passt.teardown),
    TAP: (plugin.tap, plugin.teardown),
    SIDECAR: (plugin.sidecar, plugin.teardown),
}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}")
_NIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,15}")
_DOMAIN = re.compile(r"[A-Za-z0-9._-]{1,253}")
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
MAX_QUEUES = 256
PRIVATE_OPTIONS = range(224, 255)


def check_plan(plan: NetPlan) -> None:
    """What the plan says ends up in command lines and file names."""
    for field, uid in (("vmiUid", plan.vmi_uid), ("podUid", plan.pod_uid or plan.vmi_uid)):
        _demand(bool(_NAME.fullmatch(uid)) and uid not in (".", ".."), field, f"{uid!r} is not a UID")
    _demand(bool(plan.state_dir), "stateDir", "must be given")
    _demand(bool(plan.pod_pid or plan.netns_path), "podPid", "either podPid or netnsPath is needed")
    for number, interface in enumerate(plan.interfaces):
        _check_interface(f"interfaces[{number}]", interface)
    names = [interface.pod_interface for interface in plan.interfaces]
    _demand(len(set(names)) == len(names), "interfaces", "two guest interfaces want the same Pod interface")


def _check_interface(path: str, interface: NetPlanInterface) -> None:
    _demand(interface.binding in _BINDINGS, f"{path}.binding", f"{interface.binding!r} is not a known binding")
    _demand(bool(_NIC_NAME.fullmatch(interface.pod_interface)), f"{path}.podInterface", "is not an interface name")
    mac = interface.mac.lower()
    _demand(not mac or bool(_MAC.fullmatch(mac)), f"{path}.mac", f"{interface.mac!r} is not a MAC address")
    _demand(mac != masquerade.BRIDGE_MAC, f"{path}.mac", f"{mac} is taken by the bridge in the Pod")
    _demand(1 <= max(interface.queues, 1) <= MAX_QUEUES, f"{path}.queues", f"must be at most {MAX_QUEUES}")
    _demand(
        not interface.hostname or bool(_NAME.fullmatch(interface.hostname)), f"{path}.hostname", "is not a host name"
    )
    for domain in interface.search_domains:
        _demand(bool(_DOMAIN.fullmatch(domain)), f"{path}.searchDomains", f"{domain!r} is not a domain")
    for server in interface.dns_servers:
        _demand(_is_address(server), f"{path}.dnsServers", f"{server!r} is not an IP address")
    if interface.dhcp_options is not None:
        _check_options(f"{path}.dhcpOptions", interface.dhcp_options)
    for port in interface.ports:
        for number in (port.port, port.last or port.port):
            _demand(0 < number < 65536, f"{path}.ports", f"{number} is not a port from 1 to 65535")
        _demand(port.last == 0 or port.port <= port.last, f"{path}.ports", f"{port.port} is after {port.last}")
        _demand(
            port.protocol.upper() in ("TCP", "UDP", "SCTP"),
            f"{path}.ports",
            f"{port.protocol!r} is not TCP, UDP or SCTP",
        )


def _check_options(path: str, options: NetDhcpOptions) -> None:
    for option in options.private_options:
        _demand(option.option in PRIVATE_OPTIONS, f"{path}.privateOptions", f"{option.option} is not from 224 to 254")
        _demand(len(option.value.encode()) <= MAX_OPTION, f"{path}.privateOptions", _too_long(str(option.option)))
    for name, text in (("bootFileName", options.boot_file_name), ("tftpServerName", options.tftp_server_name)):
        _demand(len(text.encode()) <= MAX_OPTION, f"{path}.{name}", _too_long(name))
    for server in options.ntp_servers:
        _demand(_is_address(server), f"{path}.ntpServers", f"{server!r} is not an IP address")


def _too_long(what: str) -> str:
    return f"{what} has more than the {MAX_OPTION} bytes that an option of DHCP takes"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    return True


def _demand(holds: bool, field: str, message: str) -> None:
    if not holds:
        raise NetsetupError(field, message, critical=True)


def setup(plan: NetPlan, interface: NetPlanInterface, nic: PodNic, position: int) -> Wiring:
    return _BINDINGS[interface.binding][0](plan, interface, nic, position)


def teardown(record: Record) -> list[Step]:
    """From the record alone: by then the plan of the setup may be forgotten."""
    return _BINDINGS[record.binding][1](record)
