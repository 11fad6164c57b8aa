"""How a NIC is bound: read in one place by admission, preferences, virt-handler and virt-launcher."""

from __future__ import annotations

from typing import Any

import pytest

from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.bindings import BINDINGS, DEFAULTS, REMOVED, WIRED, binding_of, chosen, removed
from virt_core.apis.interfaces import Interface, default_interface


def _nic(**fields: Any) -> Interface:
    return from_plain({"name": "default", **fields}, Interface)


@pytest.mark.parametrize("binding", BINDINGS)
def test_each_binding_is_found_by_the_name_that_the_api_gives_it(binding: str) -> None:
    nic = _nic(**{binding: {"name": "x"} if binding == "binding" else {}})
    assert binding_of(nic) == binding
    assert chosen(nic) == [binding]
    assert not removed(nic)


def test_none_and_several_are_no_binding() -> None:
    assert binding_of(_nic()) == ""
    assert binding_of(_nic(bridge={}, masquerade={})) == ""


@pytest.mark.parametrize("binding", REMOVED)
def test_what_was_removed_is_no_binding_but_is_named(binding: str) -> None:
    nic = _nic(**{binding: {}})
    assert (binding_of(nic), removed(nic)) == ("", [binding])


@pytest.mark.parametrize("binding", [*DEFAULTS, ""])
def test_the_nic_that_is_added_has_the_clusters_binding(binding: str) -> None:
    assert to_plain(default_interface("default", binding)) == {"name": "default", binding or "bridge": {}}


def test_what_netsetup_wires_are_bindings() -> None:
    assert set(WIRED) <= set(BINDINGS)
