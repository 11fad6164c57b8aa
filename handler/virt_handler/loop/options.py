"""What a launcher cannot know by itself, for the calls that make a machine or make ready for one."""

from __future__ import annotations

from dataclasses import asdict

from virt_core.apis import bindingplugins
from virt_core.apis.bindingplugins import Configured
from virt_core.apis.devices import Interface
from virt_core.apis.netplan import NetReport, NetReportInterface
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.configvalues import ClusterConfig
from virt_handler.decisions.netplans import queues, wanted_interfaces
from virt_handler.loop.sessions import Session
from virt_handler.node.capabilities import NodeCapabilities
from virt_protos.launcher.v1 import launcher_pb2 as pb


def sync_options(
    session: Session, vmi: VirtualMachineInstance, capabilities: NodeCapabilities, config: ClusterConfig
) -> pb.SyncOptions:
    report = session.view().report or NetReport()
    wanted = {nic.name: nic for nic in wanted_interfaces(vmi)}
    return pb.SyncOptions(
        allow_emulation=not capabilities.kvm,
        capability_cache=capabilities.cache_files(),
        interfaces=[
            _attachment(found, wanted.get(found.name), vmi, config.network_bindings) for found in report.interfaces
        ],
        smbios=pb.SMBios(**asdict(config.smbios)),
        memballoon_stats_period_seconds=config.mem_balloon_stats_period_s,
    )


def _attachment(
    found: NetReportInterface, nic: Interface | None, vmi: VirtualMachineInstance, plugins: Configured
) -> pb.InterfaceAttachment:
    """One that is just going is known by its report alone."""
    made = pb.InterfaceAttachment(name=found.name, tap=found.tap, mac=found.mac, mtu=found.mtu, queues=1)
    if nic is None:
        return made
    row = bindingplugins.row(nic, plugins)
    made.queues = queues(vmi, nic) if row is None or row.multiqueue else 1
    made.refresh_link = bindingplugins.refreshes_link(nic, plugins)
    return made
