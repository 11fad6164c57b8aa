"""What virt-netsetup is asked to do for a VMI. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from virt_core.apis import bindingplugins, names
from virt_core.apis.bindingplugins import NO_PLUGINS, Configured
from virt_core.apis.bindings import DEVICES, MASQUERADE, TAP, Binding, binding_of, row_of
from virt_core.apis.devices import DHCPOptions, Interface
from virt_core.apis.facts import in_mesh
from virt_core.apis.netplan import NetDhcpOption, NetDhcpOptions, NetPlan, NetPlanInterface, NetPort
from virt_core.apis.networks import PodNetwork, decimal_octets
from virt_core.apis.podnetworks import pod_interface
from virt_core.apis.vmi import VirtualMachineInstance
from virt_handler.decisions.nameservers import Resolver

_MAX_QUEUES = 256


class NetworkError(Exception):
    """The network could not be set up."""

    def __init__(self, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


def plan(
    vmi: VirtualMachineInstance,
    pod_uid: str,
    *,
    pod_pid: int = 0,
    netns_path: str = "",
    state_dir: str = "",
    resolver: Resolver | None = None,
    launcher_uid: int = names.LAUNCHER_UID,
    nics: Sequence[Interface] | None = None,
    plugins: Configured = NO_PLUGINS,
) -> NetPlan:
    """What virt-netsetup is asked for: the wiring of all NICs that the Pod is to have, by default those of the spec.
    Raises NetworkError for what it cannot do."""
    wired = wanted_interfaces(vmi) if nics is None else nics
    return NetPlan(
        vmi_uid=vmi.metadata.uid,
        pod_uid=pod_uid,
        pod_pid=pod_pid,
        netns_path=netns_path,
        launcher_uid=launcher_uid,
        state_dir=state_dir,
        interfaces=[_interface(vmi, nic, resolver or Resolver(), _row(nic, plugins)) for nic in wired],
    )


def wanted_interfaces(vmi: VirtualMachineInstance) -> list[Interface]:
    return [nic for nic in vmi.spec.domain.devices.interfaces if nic.state != "absent" and is_wired(nic)]


def is_wired(nic: Interface) -> bool:
    """Whether the Pod has something for it that we make. A device of the node has nothing."""
    return binding_of(nic) not in DEVICES


def _row(nic: Interface, plugins: Configured) -> Binding:
    row = bindingplugins.row(nic, plugins)
    if row is None and nic.binding is not None:
        # Somebody may configure it again.
        raise NetworkError(f'interface "{nic.name}": the cluster has no network binding plugin {nic.binding.name!r}')
    if row is None or not row.wired:
        raise NetworkError(f'interface "{nic.name}" has no binding that can be wired', fatal=True)
    return row


def _interface(vmi: VirtualMachineInstance, nic: Interface, resolver: Resolver, row: Binding) -> NetPlanInterface:
    network = next((network for network in vmi.spec.networks if network.name == nic.name), None)
    if network is None or (network.pod is None and network.multus is None):
        raise NetworkError(f'interface "{nic.name}" has no network of type pod or multus', fatal=True)
    inside = network.pod or PodNetwork()
    known = next((each.mac for each in vmi.status.interfaces if each.name == nic.name), "")
    return NetPlanInterface(
        name=nic.name,
        binding=row.name,
        pod_interface=pod_interface(network),
        # One that the guest has already stays, also in another Pod.
        mac=nic.mac_address.replace("-", ":") or known,
        ports=_ports(nic),
        vm_network_cidr=decimal_octets(inside.vm_network_cidr),
        vm_ipv6_network_cidr=inside.vm_ipv6_network_cidr,
        queues=queues(vmi, nic),
        hostname=vmi.spec.hostname or vmi.metadata.name,
        dns_servers=list(resolver.servers),
        search_domains=list(resolver.searches),
        dhcp_options=_dhcp_options(nic.dhcp_options),
        link_down=nic.state == "down",
        mesh=in_mesh(vmi) and row.name == MASQUERADE,
    )


def _ports(nic: Interface) -> list[NetPort]:
    single = [NetPort(port=port.port, protocol=port.protocol or "TCP", name=port.name) for port in nic.ports]
    return single + [NetPort(port=each.start, last=each.end, protocol=each.protocol) for each in nic.port_ranges]


def queues(vmi: VirtualMachineInstance, nic: Interface) -> int:
    # A plugin's is what its TAP has; one of a sidecar is told of here as one that could have several.
    row = row_of(binding_of(nic), TAP)
    able = (nic.model or "virtio") == "virtio" and (row is None or row.multiqueue)
    if not vmi.spec.domain.devices.network_interface_multiqueue or not able:
        return 1
    cpu = vmi.spec.domain.cpu
    count = max(cpu.cores, 1) * max(cpu.sockets, 1) * max(cpu.threads, 1) if cpu is not None else 1
    return min(count, _MAX_QUEUES)


def _dhcp_options(options: DHCPOptions | None) -> NetDhcpOptions | None:
    if options is None:
        return None
    return NetDhcpOptions(
        boot_file_name=options.boot_file_name,
        tftp_server_name=options.tftp_server_name,
        ntp_servers=[decimal_octets(server) for server in options.ntp_servers],
        private_options=[NetDhcpOption(option=o.option, value=o.value) for o in options.private_options],
    )
