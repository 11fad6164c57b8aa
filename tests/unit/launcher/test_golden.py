"""Every VMI of the table becomes exactly the XML on record, which libvirt's own schema accepts.

`UPDATE_GOLDEN=1 pytest tests/unit/launcher/test_golden.py` writes them anew; read the difference before you keep it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.cases import CASES, context_of
from virt_launcher.convert import firmware
from virt_launcher.convert.converter import convert
from virt_launcher.domain.codec import slots_of
from virt_launcher.domain.domain import Domain, from_xml, to_xml

GOLDEN = Path(__file__).resolve().parents[2] / "golden/launcher"
SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


@pytest.fixture(autouse=True)
def _image_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher's image has UEFI and a software TPM, whatever this machine has."""
    monkeypatch.setattr(firmware, "is_there", lambda _path: True)
    monkeypatch.setattr("virt_launcher.convert.devices.shutil.which", lambda *_, **__: "/usr/bin/swtpm")


@pytest.mark.parametrize("name", CASES)
def test_domain_is_as_recorded(name: str) -> None:
    text = to_xml(convert(context_of(CASES[name])))
    record = GOLDEN / f"{name}.xml"
    if os.environ.get("UPDATE_GOLDEN"):
        record.write_text(text)
    assert text == record.read_text()


@pytest.mark.parametrize("name", CASES)
def test_reading_back_gives_the_same(name: str) -> None:
    domain = convert(context_of(CASES[name]))
    assert from_xml(to_xml(domain)) == domain


@pytest.mark.skipif(
    not SCHEMA.exists() or shutil.which("xmllint") is None, reason="no libvirt schema or no xmllint here"
)
def test_libvirts_schema_accepts_every_record() -> None:
    files = [str(GOLDEN / f"{name}.xml") for name, case in CASES.items() if case.valid_here]
    command = ["xmllint", "--noout", "--relaxng", str(SCHEMA), *files]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in result.stderr.splitlines() if not line.endswith(" validates")]
    assert complaints == []


def test_no_record_without_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.xml")} == {*CASES, "live", "live-grown"}


def test_every_declared_field_is_in_some_record() -> None:
    """A field that no record shows is a field that nobody has tried."""
    used: set[tuple[type, str]] = set()
    for path in GOLDEN.glob("*.xml"):
        _collect(from_xml(path.read_text()), used)
    declared = {(cls, slot.name) for cls in _classes(Domain) for slot in slots_of(cls)}
    assert {f"{cls.__name__}.{name}" for cls, name in declared - used} == set()


def _classes(cls: type) -> set[type]:
    found = {cls}
    for slot in slots_of(cls):
        if dataclasses.is_dataclass(slot.kind):
            found |= _classes(slot.kind)
    return found


def _collect(obj: Any, used: set[tuple[type, str]]) -> None:
    for slot in slots_of(type(obj)):
        value = getattr(obj, slot.name)
        if value is None or value is False or value == []:
            if value is False and slot.kind is bool and slot.place.attribute:
                used.add((type(obj), slot.name))
            continue
        used.add((type(obj), slot.name))
        for item in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(item):
                _collect(item, used)
