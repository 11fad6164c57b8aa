"""What the KubeVirt object can say is read by somebody: a value that nobody reads is a promise that nobody keeps."""

from __future__ import annotations

import dataclasses
import re

from framework.documents import ROOT

from virt_core.kube.configvalues import ClusterConfig

#: Values that nobody reads yet, with the reason.
UNREAD = {
    "pvc_tolerate_less_space_percent": "disk files are made in claims that are large enough, or refused",
    "minimum_reserve_pvc_bytes": "likewise",
    "vm_state_storage_class": "persistent TPM and firmware variables are not built",
}
PROGRAMS = ("api", "controller", "handler", "launcher", "virtctl", "local", "core")
#: Where values are declared and merged.
OWN = re.compile(r"core/virt_core/(kube/configmerge|apis/config\w*)\.py$")


def readers() -> str:
    files = [path for name in PROGRAMS for path in (ROOT / name).rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files if not OWN.search(str(path)))


def test_every_value_of_the_configuration_is_read() -> None:
    text = readers()
    names = {field.name for field in dataclasses.fields(ClusterConfig)}
    unread = {name for name in names if not re.search(rf"\.{name}\b", text)}
    assert unread <= UNREAD.keys(), "say who reads it, or why nobody does"
    assert UNREAD.keys() <= names
