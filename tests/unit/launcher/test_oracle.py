"""Our domains against those that the real KubeVirt gave libvirt for the same manifests, compared by meaning."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.cases import source_of
from virt_core.apis.base import from_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.convert.context import Attachment, Context
from virt_launcher.convert.converter import convert
from virt_launcher.domain.domain import Domain, from_xml

ORACLE = Path(__file__).resolve().parents[4] / "shared/oracle"
pytestmark = pytest.mark.skipif(not ORACLE.exists(), reason="the recorded answers are not beside this checkout")

CASES = sorted(p.stem for p in (ORACLE / "domains").glob("*.xml"))

#: Where ours is different on purpose. Fields of the record, or of one of its parts, that are not compared:
#: - paths and vendor strings are ours;
#: - the processor's mode: under emulation we ask for all that QEMU has instead of a copy of the host;
#: - the emulator and the place of a PC's screen, which we leave to libvirt;
#: - the domain's name: the record is named after the case;
#: - what libvirt need not read back (decisions/0024).
IGNORED = {
    "Disk": {"source_file", "backing_store"},
    "Interface": {"mac", "target"},
    "Serial": {"source_path", "log_file"},
    "RedirDev": {"source_path"},
    "Listen": {"socket"},
    "Channel": {"source_path", "source_mode"},
    "Cpu": {"mode", "check"},
    "Os": {"machine"},
    "Devices": {"emulator"},
    "Video": {"address"},
    "Domain": {"name", "uuid", "vmi_uid", "sysinfo", "without_capabilities"},
}


#: Where devices sit elsewhere than in the record, with the reason.
ELSEWHERE = {
    "many-disks": "more SATA controllers sit on the root complex, where no bridge takes the port of the network card",
    "watchdog-noname": "the watchdog sits on the root complex, where no bridge takes the port of the network card",
    "nicstate-absent-bridge": "a card that is leaving keeps no port: the others do not move when it is gone",
}
#: Where theirs does native IO on a small file because it happens to have no holes; ours does so for claims only.
NATIVE_BY_CHANCE = ("vol-downwardapi", "vol-sa")


@pytest.fixture(autouse=True)
def _image_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virt_launcher.convert.devices.shutil.which", lambda *_, **__: "/usr/bin/swtpm")


@pytest.fixture(scope="module")
def admitted() -> dict[str, dict[str, Any]]:
    with open(ORACLE / "admission.jsonl") as file:
        rows = [json.loads(line) for line in file]
    return {row["name"]: row["admitted"] for row in rows if row.get("admitted")}


@pytest.mark.parametrize("name", CASES)
def test_same_machine(name: str, admitted: dict[str, dict[str, Any]]) -> None:
    ours = convert(context_for(admitted[name]))
    theirs = from_xml((ORACLE / "domains" / f"{name}.xml").read_text())
    assert ports(ours) == ports(theirs) or name in ELSEWHERE
    _leave_out_what_libvirt_added(theirs, ours)
    if name in NATIVE_BY_CHANCE:
        theirs.devices.disks[1].io = None
    if name in ELSEWHERE:
        _forget_pci_addresses(ours)
        _forget_pci_addresses(theirs)
    assert plain(ours) == plain(theirs)


def ports(domain: Domain) -> int:
    return sum(1 for controller in domain.devices.controllers if controller.model == "pcie-root-port")


@pytest.mark.parametrize("name", ["base", "fw-serial"])
def test_same_identity(name: str, admitted: dict[str, dict[str, Any]]) -> None:
    ours = convert(context_for(admitted[name]))
    assert ours.sysinfo is not None
    values = {entry.name: entry.value for entry in ours.sysinfo.system}
    assert values["uuid"] == ours.uuid == admitted[name]["spec"]["domain"]["firmware"]["uuid"]
    assert values.get("serial") == admitted[name]["spec"]["domain"]["firmware"].get("serial")


def context_for(body: dict[str, Any]) -> Context:
    vmi = from_plain(body, VirtualMachineInstance)
    vmi.metadata.uid = "7043063b-e1c9-464f-9ce7-9189037edf72"
    return Context(
        vmi=vmi,
        machine_dir="/private",
        kvm=False,
        libvirt_version=11_003_000,
        sources={volume.name: source_of(volume) for volume in vmi.spec.volumes},
        attachments={i.name: Attachment("tap0", "", 1500) for i in vmi.spec.domain.devices.interfaces},
    )


def _forget_pci_addresses(domain: Domain) -> None:
    for device in pci_devices(domain):
        device.address = None


def pci_devices(domain: Domain) -> list[Any]:
    devices = domain.devices
    listed: list[Any] = [*devices.disks, *devices.interfaces, *devices.controllers, *devices.inputs, *devices.watchdogs]
    listed += [*devices.rngs, devices.memballoon]
    return [d for d in listed if d is not None and d.address is not None and d.address.type in ("pci", "usb")]


def _leave_out_what_libvirt_added(theirs: Domain, ours: Domain) -> None:
    devices = theirs.devices
    # Ports and built-in controllers come from libvirt; the SCSI one is there for later disks, we add it when they come.
    kept = {(c.type, c.index) for c in ours.devices.controllers if c.type != "pci"}
    devices.controllers = [c for c in devices.controllers if (c.type, c.index) in kept]
    ours.devices.controllers = [c for c in ours.devices.controllers if c.type != "pci"]
    devices.inputs = [i for i in devices.inputs if i.bus != "ps2"]
    devices.watchdogs = [w for w in devices.watchdogs if w.model != "itco"]
    for device in pci_devices(theirs):
        if device.address.type == "usb":
            device.address = None  # The place on the USB bus is libvirt's choice.
    named: list[Any] = [*devices.inputs, *devices.watchdogs]
    for device in named:
        device.alias = device.alias if device.alias != "ua-" else None  # Ours has none without a name.
    for controller in devices.controllers:
        if controller.type == "virtio-serial":
            controller.model = "virtio-non-transitional"  # Theirs is a plain one when there is no serial console.
    if ours.clock is None:
        theirs.clock = None
    elif theirs.clock is not None:
        theirs.clock.timers = [t for t in theirs.clock.timers if t.name != "tsc"]
    theirs.on_reboot = ours.on_reboot  # Theirs shows libvirt's default.
    assert theirs.memory is not None
    assert ours.memory is not None
    theirs.memory.value, theirs.memory.unit = (theirs.memory.value or 0) * 1024, "b"


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        ignored = IGNORED.get(type(value).__name__, set())
        names = [f.name for f in dataclasses.fields(value) if f.name not in ignored]
        return {name: plain(getattr(value, name)) for name in names}
    return [plain(item) for item in value] if isinstance(value, list) else value
