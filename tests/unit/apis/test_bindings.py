"""How a NIC is bound: read in one place by admission, preferences, virt-handler and virt-launcher."""

from __future__ import annotations

from typing import Any

import pytest

from virt_core.apis import bindingplugins
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.bindings import (
    ATTACHMENTS,
    BINDINGS,
    DEFAULTS,
    MANAGED_TAP,
    PASST,
    PLUGIN,
    REMOVED,
    SIDECAR,
    TABLE,
    TAP,
    binding_of,
    chosen,
    removed,
    row_of,
)
from virt_core.apis.gates import GATES
from virt_core.apis.interfaces import Interface, default_interface
from virt_core.apis.vmi import VirtualMachineInstanceSpec

PLUGINS = {
    "bare": {"domainAttachmentType": "tap"},
    "ours": {
        "domainAttachmentType": "managedTap",
        "migration": {"method": "link-refresh"},
        "computeResourceOverhead": {"requests": {"memory": "10Mi"}},
    },
    "theirs": {"sidecarImage": "registry/sidecar:v1", "migration": {}},
}


def _nic(**fields: Any) -> Interface:
    return from_plain({"name": "default", **fields}, Interface)


def _spec(*plugins: str) -> VirtualMachineInstanceSpec:
    nics = [{"name": f"n{number}", "binding": {"name": name}} for number, name in enumerate(plugins)]
    return from_plain({"domain": {"devices": {"interfaces": nics}}}, VirtualMachineInstanceSpec)


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


def test_every_choice_has_a_row() -> None:
    assert {row_of(name).name for name in BINDINGS if name != PLUGIN} | set(ATTACHMENTS.values()) == set(TABLE)  # type: ignore[union-attr]
    assert {row.gate for row in TABLE.values()} - {""} <= set(GATES)


@pytest.mark.parametrize(("name", "row"), [("bare", TAP), ("ours", MANAGED_TAP), ("theirs", SIDECAR)])
def test_a_plugin_has_the_row_of_its_attachment(name: str, row: str) -> None:
    found = bindingplugins.row(_nic(binding={"name": name}), PLUGINS)
    assert found is not None
    assert found.name == row


def test_a_plugin_that_nobody_configured_has_none_and_is_named() -> None:
    assert bindingplugins.row(_nic(binding={"name": "smoke"}), PLUGINS) is None
    assert bindingplugins.row(_nic(passtBinding={}), PLUGINS) is TABLE[PASST]
    ((path, words),) = bindingplugins.unknown(_spec("ours", "smoke"), PLUGINS)
    assert path == "domain.devices.interfaces[1].binding.name"
    assert words == "the cluster has no network binding plugin 'smoke'; it has bare, ours, theirs"


def test_a_plugin_counts_once_for_a_machine() -> None:
    assert list(bindingplugins.used(_spec("theirs", "ours", "ours"), PLUGINS)) == ["theirs", "ours"]
    assert bindingplugins.memory_of(_spec("ours", "ours", "bare"), PLUGINS) == 10 << 20


@pytest.mark.parametrize(
    ("name", "moves", "refreshes"), [("bare", False, False), ("ours", True, True), ("theirs", True, False)]
)
def test_a_machine_moves_with_a_plugin_that_says_so(name: str, moves: bool, refreshes: bool) -> None:
    nic = _nic(binding={"name": name})
    assert bindingplugins.moves(nic, PLUGINS) is moves
    assert bindingplugins.refreshes_link(nic, PLUGINS) is refreshes


@pytest.mark.parametrize(
    ("plugin", "field"),
    [
        ({"domainAttachmentType": "bridge"}, "domainAttachmentType"),
        ({"networkAttachmentDefinition": "net"}, "domainAttachmentType"),
        ({"domainAttachmentType": "tap", "migration": {"method": "carry"}}, "migration.method"),
        ({"domainAttachmentType": "tap", "downwardAPI": "device-info"}, "downwardAPI"),
        ({"domainAttachmentType": "tap", "networkAttachmentDefinition": "a/b/c"}, "networkAttachmentDefinition"),
        (
            {"domainAttachmentType": "tap", "computeResourceOverhead": {"requests": {"memory": "-1Mi"}}},
            "computeResourceOverhead.requests.memory",
        ),
        (
            {"domainAttachmentType": "tap", "computeResourceOverhead": {"requests": {"memory": "much"}}},
            "computeResourceOverhead.requests.memory",
        ),
    ],
)
def test_what_cannot_work_of_a_plugin_is_named(plugin: dict[str, Any], field: str) -> None:
    assert [path for path, _ in bindingplugins.flaws({"p": plugin})] == [f"p.{field}"]


def test_the_plugins_of_these_tests_can_work() -> None:
    assert not list(bindingplugins.flaws(PLUGINS))
