"""Debian packages: what is used of each is written down, and nothing is installed for nothing."""

from __future__ import annotations

import pytest
from tests import needs


@pytest.mark.parametrize("name", sorted(needs.TABLES))
def test_every_package_is_listed_and_used(name: str) -> None:
    listed = needs.packages(needs.LISTS[name])
    assert sorted(listed) == sorted(set(listed)), "a package is listed twice"
    for package in sorted(set(needs.TABLES[name]) - set(listed)):
        pytest.fail(
            f"{needs.TABLES[name][package][0]} is used, and {package}, which has it, is not in {needs.LISTS[name]}"
        )
    assert not set(listed) - set(needs.TABLES[name]), "tests/needs.py does not say what is used of these"


def test_what_is_missing_is_one_sentence_with_its_packages() -> None:
    absent = needs.missing(needs.RUN, lambda what: what not in ("virsh", "pgrep", "ps"))
    assert absent == {"virsh": "libvirt-clients", "pgrep": "procps", "ps": "procps"}
    told = needs.sentence(absent, "hack/apt-packages.txt")
    assert told.startswith("these are missing here: virsh, pgrep, ps; they come with libvirt-clients procps,")
