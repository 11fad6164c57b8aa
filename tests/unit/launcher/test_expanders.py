"""Devices of the node near the memory of the guest that they are near to: which, and where they then sit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.cases import CASES, Case, context_of
from virt_launcher.converge.places import free_ports
from virt_launcher.convert.converter import convert
from virt_launcher.convert.expanders import expand, near_cells
from virt_launcher.convert.ports import bus_of
from virt_launcher.domain.domain import Domain

NEAR = CASES["host-devices-near-memory"]


def with_sys(sys: Path | None, **annotations: str) -> Domain:
    return convert(context_of(replace(NEAR, context=NEAR.context | {"sys": sys}, annotations=annotations)))


def buses(domain: Domain) -> dict[str, int]:
    return {device.alias or "": bus_of(device.address) for device in domain.devices.hostdevs if device.address}


def test_each_cell_has_a_bus_and_each_device_a_port_there() -> None:
    domain = with_sys(NEAR.context["sys"])
    expanders = {c.index: c for c in domain.devices.controllers if c.model == "pcie-expander-bus"}
    assert [c.cell for c in expanders.values()] == [0, 1]
    ports = {c.index: bus_of(c.address) for c in domain.devices.controllers if c.address and c.type == "pci"}
    cells = {alias: expanders[ports[bus]].cell for alias, bus in buses(domain).items() if bus in ports}
    assert cells == {"ua-gpu-first": 1, "ua-gpu-whole": 1, "ua-hostdevice-card": 0}
    assert buses(domain)["ua-gpu-of-no-cell"] not in ports


def test_controllers_are_numbered_without_a_gap_and_buses_do_not_meet() -> None:
    """libvirt fills a gap with ports of its own; a bus of the guest has one number and one for each port on it."""
    domain = with_sys(NEAR.context["sys"])
    indexes = sorted(c.index or 0 for c in domain.devices.controllers if c.type == "pci")
    assert indexes == list(range(1, len(indexes) + 1))
    expanders = [c for c in domain.devices.controllers if c.model == "pcie-expander-bus"]
    taken: set[int] = set(range(len(indexes) + 1))
    for bus in expanders:
        ports = [c for c in domain.devices.controllers if c.address and bus_of(c.address) == bus.index]
        own = set(range(bus.bus_number or 0, (bus.bus_number or 0) + len(ports) + 1))
        assert max(own) <= 255
        assert not taken & own
        taken |= own


@pytest.mark.parametrize("sys", [None, Path("/nonexistent")])
def test_without_the_gate_or_the_kernels_word_they_sit_with_all_others(sys: Path | None) -> None:
    domain = with_sys(sys)
    assert not [c for c in domain.devices.controllers if c.model == "pcie-expander-bus"]
    assert len(buses(domain)) == 4


def test_the_root_complex_was_asked_for() -> None:
    domain = with_sys(NEAR.context["sys"], **{"kubevirt.io/placePCIDevicesOnRootComplex": "true"})
    assert set(buses(domain).values()) == {0}


def test_a_guest_that_sees_no_cells_has_no_such_bus() -> None:
    plain = Case(
        domain={"devices": NEAR.domain["devices"]},
        spec=NEAR.spec,
        context={"environment": NEAR.context["environment"], "sys": NEAR.context["sys"]},
    )
    assert not [c for c in convert(context_of(plain)).devices.controllers if c.model == "pcie-expander-bus"]


def test_a_port_of_an_expander_is_free_for_nobody() -> None:
    domain = with_sys(NEAR.context["sys"])
    domain.devices.hostdevs.clear()
    beyond = {c.index for c in domain.devices.controllers if c.model == "pcie-root-port" and c.address is not None}
    assert beyond
    assert not beyond & set(free_ports(domain))


def test_an_expander_has_so_many_slots(tmp_path: Path) -> None:
    domain = with_sys(None)
    [*_, card] = [device for device in domain.devices.hostdevs if device.type == "pci"]
    place = tmp_path / "bus/pci/devices/0000:af:00.1"
    place.mkdir(parents=True)
    (place / "numa_node").write_text("0\n")
    many: list[Any] = [replace(card, address=None, alias=f"ua-{n}") for n in range(40)]
    domain.devices.hostdevs = many
    [near] = near_cells(domain, tmp_path)
    assert len(near.devices) == 32
    list(expand([near], 10))
    assert len({device.address.bus for device in many[:32]}) == 32
    assert many[33].address is None
