"""What a launcher cannot know by itself, for the calls that make a machine or make ready for one."""

from __future__ import annotations

from dataclasses import asdict

from virt_core.apis.netplan import NetReport
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
    wanted = {nic.name: queues(vmi, nic) for nic in wanted_interfaces(vmi)}
    return pb.SyncOptions(
        allow_emulation=not capabilities.kvm,
        capability_cache=capabilities.cache_files(),
        interfaces=[
            pb.InterfaceAttachment(name=n.name, tap=n.tap, mac=n.mac, mtu=n.mtu, queues=wanted.get(n.name, 1))
            for n in report.interfaces
        ],
        smbios=pb.SMBios(**asdict(config.smbios)),
        memballoon_stats_period_seconds=config.mem_balloon_stats_period_s,
    )
