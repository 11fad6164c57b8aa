"""VMI networkreport: whom it is for, and what it passes on from the node."""

from __future__ import annotations

from typing import Any

from functional.api.rig import Rig, make_vmi
from functional.api.test_http import BEARER, call


def ask(rig: Rig) -> tuple[int, Any]:
    return call(rig, "GET", rig.sub("networkreport"), headers=BEARER)


def test_the_node_tells_the_way(rig: Rig) -> None:
    code, body = ask(rig)
    assert code == 200
    [walk] = body["interfaces"]
    assert (walk["state"], walk["stopsAt"], walk["sentence"]) == ("Stopped", "guest", "It is mute.")
    assert (walk["podAddresses"], walk["guestAddresses"]) == (["10.244.0.9"], ["10.0.2.2"])
    assert walk["stations"] == [{"name": "guest", "state": "stops", "seen": "arp 10.0.2.2: no answer"}]


def test_it_needs_its_own_right(rig: Rig) -> None:
    """Frames are put into the guest for it."""
    ask(rig)
    asked = rig.client.access[-1].spec.resource_attributes
    assert asked is not None
    assert (asked.verb, asked.resource, asked.subresource) == ("get", "virtualmachineinstances", "networkreport")
    rig.node.commands.clear()
    rig.client.allowed = False
    assert ask(rig)[0] == 403
    assert not rig.node.commands


def test_without_a_node_there_is_nothing_to_look_at(rig: Rig) -> None:
    rig.client.vmis["vm1"] = make_vmi(phase="Scheduling")
    code, body = ask(rig)
    assert (code, "its phase is Scheduling" in body["message"]) == (409, True)
    rig.client.vmis["vm1"] = make_vmi(phase="Scheduled")
    assert ask(rig)[0] == 200
