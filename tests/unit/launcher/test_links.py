"""After a move the guest sees a link go and come, where a plugin asks for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from framework.fake_hypervisor import FakeHypervisor

from virt_launcher.convert.context import Attachment
from virt_launcher.domain.devices import Interface
from virt_launcher.domain.domain import Domain, from_xml, to_xml
from virt_launcher.moves.links import Links, to_refresh


def test_only_links_that_are_up_and_asked_for() -> None:
    nics = [Interface(alias="ua-a"), Interface(alias="ua-b"), Interface(alias="ua-c", link="down"), Interface()]
    wanted = {"a": Attachment("tap0", refresh_link=True), "b": Attachment("t"), "c": Attachment("t", refresh_link=True)}
    assert [nic.alias for nic in to_refresh(nics, wanted)] == ["ua-a"]


def test_it_is_up_again_in_the_end_also_when_libvirt_is_away_for_a_moment() -> None:
    hypervisor = FakeHypervisor("ns_vm")
    domain = Domain(name="ns_vm")
    domain.devices.interfaces = [Interface(type="ethernet", target="tap0", alias="ua-a")]
    hypervisor.define(to_xml(domain))
    hypervisor.start()
    seen: list[str | None] = []
    alone = threading.Lock()

    @contextmanager
    def modifying() -> Iterator[None]:
        with alone:
            yield

    def pause(_: float) -> None:
        assert alone.locked(), "who compares the machine with its spec would take the link up"
        hypervisor.broken = False
        seen.append(from_xml(hypervisor.describe()).devices.interfaces[0].link)
        hypervisor.broken = len(seen) < 3

    Links(hypervisor, {"a": Attachment("tap0", refresh_link=True)}, modifying, sleep=pause).refresh()
    assert seen == ["down"] * 3
    assert from_xml(hypervisor.describe()).devices.interfaces[0].link == "up"
