"""Bindings of plugins and passt, as virt-handler sees them: what is wired, what the launcher hears, what can move."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import POD_UID, handed_over

from virt_core.apis.netplan import NetReportInterface
from virt_core.apis.vmi import VirtualMachineInstance
from virt_handler.decisions import migratable, netplans
from virt_handler.loop.options import _attachment

PLUGINS = {
    "bare": {"domainAttachmentType": "tap"},
    "flat": {"domainAttachmentType": "managedTap", "migration": {"method": "link-refresh"}},
    "theirs": {"sidecarImage": "image", "migration": {}},
}


def bound(**nic: Any) -> VirtualMachineInstance:
    devices = {"networkInterfaceMultiqueue": True, "interfaces": [{"name": "default", **nic}]}
    return handed_over(spec={"domain": {"cpu": {"cores": 4}, "devices": devices}})


@pytest.mark.parametrize(
    ("nic", "binding"),
    [
        ({"passtBinding": {}}, "passtBinding"),
        ({"binding": {"name": "bare"}}, "tap"),
        ({"binding": {"name": "flat"}}, "managedTap"),
        ({"binding": {"name": "theirs"}}, "sidecar"),
    ],
)
def test_netsetup_is_asked_by_the_row_of_the_table(nic: dict[str, Any], binding: str) -> None:
    (wish,) = netplans.plan(bound(**nic), POD_UID, plugins=PLUGINS).interfaces
    assert (wish.binding, wish.queues) == (binding, 1 if binding == "passtBinding" else 4)


def test_a_plugin_that_is_gone_is_waited_for() -> None:
    with pytest.raises(netplans.NetworkError, match="no network binding plugin 'flat'") as refused:
        netplans.plan(bound(binding={"name": "flat"}), POD_UID)
    assert refused.value.fatal is False


@pytest.mark.parametrize(
    ("nic", "why"),
    [
        ({"passtBinding": {}}, ""),
        ({"binding": {"name": "flat"}}, ""),
        ({"binding": {"name": "theirs"}}, ""),
        ({"binding": {"name": "bare"}}, "the network binding plugin bare does not say how a machine moves"),
        ({"binding": {"name": "gone"}}, "the network binding plugin gone does not say how a machine moves"),
    ],
)
def test_a_machine_moves_by_what_the_table_says(nic: dict[str, Any], why: str) -> None:
    found = migratable.obstacle(bound(**nic), PLUGINS)
    assert found == (("InterfaceNotLiveMigratable", why) if why else None)


def test_the_launcher_hears_of_queues_and_of_a_link_to_refresh() -> None:
    report = NetReportInterface(name="default", tap="tap0", mac="02:00:00:00:00:09", mtu=1400)
    for nic, queues, refresh in (({"binding": {"name": "flat"}}, 4, True), ({"passtBinding": {}}, 1, False)):
        vmi = bound(**nic)
        told = _attachment(report, vmi.spec.domain.devices.interfaces[0], vmi, PLUGINS)
        assert (told.tap, told.queues, told.refresh_link) == ("tap0", queues, refresh)
    assert _attachment(report, None, bound(), PLUGINS).queues == 1
