"""Holes that systems like ours really had, tried on us. Each test names the case that it repeats.

Where a case needs the rig of one component or a running system, its test lives beside the others of that kind.
docs/threat-model.md names them all, and a rule test fails if one disappears or a case is without.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from framework.vmis import UID, plain_pod, vmi

from tests.unit.api.reviews import create
from tests.unit.api.reviews import vmi as manifest
from tests.unit.launcher.cases import Case, context_of
from virt_controller.launcher_pod import TemplateConfig, UnsupportedSpecError, render
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.podroles import owner_uid
from virt_core.apis.pods import Pod
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.files import connectable_socket
from virt_handler.decisions import interfaces
from virt_handler.decisions.domains import bounded
from virt_handler.decisions.limits import MAX_ADDRESSES, MAX_GUEST_ONLY_INTERFACES, MAX_INTERFACES, MAX_WORD
from virt_handler.loop.records import GhostRecord
from virt_handler.loop.sessions import Session
from virt_handler.pods.notify_server import NotifyServicer
from virt_launcher.convert.converter import convert
from virt_launcher.disks.container_disk import ImageFile, kernel_file, make_overlay
from virt_launcher.domain.domain import to_xml
from virt_launcher.errors import InvalidVMIError
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.notify.v1 import notify_pb2

CONFIG = TemplateConfig("example.internal/launcher:v1")


# Images are hostile


@pytest.fixture
def image(tmp_path: Path) -> ImageFile:
    root = tmp_path / "volume"
    (root / "disk").mkdir(parents=True)
    (root / "boot").mkdir()
    (tmp_path / "secret").write_bytes(b"s" * 4096)
    return ImageFile(root, "spec.volumes[0].containerDisk", "example/evil:v1")


def refused(image: ImageFile, path: str, tmp_path: Path) -> str:
    """Both ways into an image refuse the path, and leave nothing behind."""
    with pytest.raises(InvalidVMIError) as disk:
        make_overlay(image, path, tmp_path / "overlay")
    with pytest.raises(InvalidVMIError):
        kernel_file(image.root, "spec.domain.firmware.kernelBoot.container.kernelPath", image.image, path)
    assert not (tmp_path / "overlay").exists()
    return str(disk.value)


@pytest.mark.parametrize(
    "path", ["/../secret", "../secret", "/disk/../../secret", "//../secret", "/disk/../../../etc/passwd"]
)
def test_paths_do_not_lead_out_of_the_image(image: ImageFile, tmp_path: Path, path: str) -> None:
    """CVE-2022-1798."""
    refused(image, path, tmp_path)


@pytest.mark.parametrize("target", ["{base}/secret", "../../secret", "/etc/passwd", "/proc/self/environ", "real.img"])
def test_links_in_an_image_are_not_followed(image: ImageFile, tmp_path: Path, target: str) -> None:
    """CVE-2025-64433, CVE-2022-1798: neither out of the image nor within it, as a file or as a directory."""
    (image.root / "disk/real.img").write_bytes(b"x" * 512)
    (image.root / "disk/link").symlink_to(target.format(base=tmp_path))
    assert "symbolic link" in refused(image, "/disk/link", tmp_path)
    (image.root / "way").symlink_to(tmp_path)
    assert "symbolic link" in refused(image, "/way/secret", tmp_path)


def test_a_link_in_the_place_of_the_disk_directory(image: ImageFile, tmp_path: Path) -> None:
    """CVE-2025-64433: without a path, the launcher looks into /disk itself."""
    (image.root / "disk").rmdir()
    (image.root / "disk").symlink_to(tmp_path)
    with pytest.raises(InvalidVMIError):
        make_overlay(image, "", tmp_path / "overlay")


@pytest.mark.parametrize("kind", ["fifo", "socket", "directory"])
def test_only_regular_files_are_disks(image: ImageFile, tmp_path: Path, kind: str) -> None:
    """A FIFO would block the launcher for good."""
    path = image.root / "disk/odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    refused(image, "/disk/odd", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-f", "qcow2", "-b", "/etc/passwd", "-F", "raw"], "backing file"),
        (["-f", "qcow2", "-o", "data_file={base}/secret,data_file_raw=on"], "external data file"),
        (["-f", "vmdk", "-o", "subformat=monolithicFlat"], "VMDK"),
        (["-f", "vmdk"], "VMDK"),
    ],
)
def test_formats_that_name_other_files_are_refused(
    image: ImageFile, tmp_path: Path, arguments: list[str], words: str
) -> None:
    """CVE-2024-32498 (external data file), CVE-2022-47951 (VMDK), CVE-2014-0134 (backing file)."""
    given = [argument.format(base=tmp_path) for argument in arguments]
    size = [] if "-b" in given else ["1M"]
    command = ["qemu-img", "create", "-q", *given, str(image.root / "disk/evil"), *size]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(InvalidVMIError, match=words):
        make_overlay(image, "/disk/evil", tmp_path / "overlay")


def test_a_disk_of_absurd_size_is_refused(image: ImageFile, tmp_path: Path) -> None:
    """CVE-2026-41648: a header may claim any size; what we make for it is bounded."""
    header = struct.pack(">4sIQIIQI", b"QFI\xfb", 2, 0, 0, 16, 1 << 62, 0)
    (image.root / "disk/huge").write_bytes(header.ljust(512, b"\0"))
    with pytest.raises(InvalidVMIError, match="beyond the limit"):
        make_overlay(image, "/disk/huge", tmp_path / "overlay")
    with open(image.root / "disk/sparse", "wb") as file:
        file.truncate(1 << 43)
    make_overlay(image, "/disk/sparse", tmp_path / "overlay")
    assert (tmp_path / "overlay").stat().st_size < 16 << 20


@pytest.mark.parametrize("path", ["../x", "/disk/../../etc/shadow", "disk.img"])
def test_the_door_refuses_such_paths_already(path: str) -> None:
    """CVE-2022-1798: by the field's name, before a Pod exists."""
    verdict = create(manifest(volumes=[{"name": "d0", "containerDisk": {"image": "i", "path": path}}]))
    assert verdict.code != 201
    assert any("containerDisk" in field for field in verdict.fields)


# Sockets


def test_a_link_as_the_last_step_is_refused(tmp_path: Path) -> None:
    """CVE-2026-13201: a descriptor of a link, opened without following it, is followed when it is used."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "cri.sock"))
        (tmp_path / "volume").mkdir()
        for target in (tmp_path / "cri.sock", "../cri.sock"):
            (tmp_path / "volume/notify-sock").symlink_to(target)
            with pytest.raises(OSError, match="Too many levels of symbolic links"):
                connectable_socket(tmp_path / "volume", "notify-sock")
            (tmp_path / "volume/notify-sock").unlink()


def test_a_listener_speaks_for_its_own_vmi_whatever_a_message_says() -> None:
    """CVE-2026-13208: a launcher that names another VM is heard as itself."""
    for message in (notify_pb2.DomainChangedRequest, notify_pb2.RecordEventRequest):
        assert not {field.name for field in message.DESCRIPTOR.fields} & {"vmi", "vmi_uid", "uid", "namespace", "name"}
    clock, told, woken = FakeClock(), [], []
    record = GhostRecord(vmi_uid=UID, namespace="default", name="vm", pod_uid="p", grace_seconds=1)
    session = Session(record, clock)
    servicer = NotifyServicer(session, lambda who, _after: woken.append(who), lambda who, *_words: told.append(who))
    domain = pb.Domain(name="victim_vm", state=pb.DOMAIN_STATE_CRASHED)
    context: Any = None
    servicer.DomainChanged(notify_pb2.DomainChangedRequest(domain=domain, sequence=1), context)
    servicer.RecordEvent(notify_pb2.RecordEventRequest(type="Warning", reason="X", message="victim"), context)
    assert woken == told == [session]


# Guests are hostile


def test_endless_guest_interfaces_are_bounded() -> None:
    """CVE-2025-14525: the VMI stays small whatever the agent claims."""
    nic = pb.GuestInterface(guest_name="x" * 500, mac="m" * 500, from_agent=True, ip_addresses=["9" * 300] * 100)
    told = bounded(pb.Domain(state=pb.DOMAIN_STATE_RUNNING, agent_connected=True, interfaces=[nic] * 300))
    assert len(told.interfaces) <= MAX_INTERFACES
    assert all(len(n.ip_addresses) <= MAX_ADDRESSES and len(n.guest_name) <= MAX_WORD for n in told.interfaces)
    assert len(interfaces.merged(vmi(), told, None)) <= MAX_GUEST_ONLY_INTERFACES + 1


def test_text_of_a_guest_has_no_control_characters() -> None:
    """What `kubectl describe` prints must not steer the terminal of whoever looks."""
    told = bounded(pb.Domain(message="\x1b[2J\x07ok\n", os_info=pb.OSInfo(name="\x1b]0;owned\x07")))
    assert "\x1b" not in told.message + told.os_info.name


# What a Pod gets, and who counts as its owner


def test_the_launcher_has_no_account_and_nothing_of_the_node() -> None:
    """CVE-2020-1701, CVE-2020-14316: no token, no path of the node, no privilege."""
    spec: dict[str, Any] = to_plain(render(vmi(), CONFIG).spec)
    assert spec["automountServiceAccountToken"] is False
    sources = [set(volume) - {"name"} for volume in spec["volumes"]]
    assert all(source <= {"emptyDir", "image", "secret"} for source in sources), sources
    assert not spec.get("hostNetwork") and not spec.get("hostPID") and not spec.get("hostIPC")  # noqa: PT018


@pytest.mark.parametrize(
    "source",
    [{"hostDisk": {"path": "/etc", "type": "DiskOrCreate", "capacity": "1Gi"}}, {"downwardMetrics": {}}],
    ids=lambda source: next(iter(source)),
)
def test_features_of_the_host_are_off(source: dict[str, Any]) -> None:
    """CVE-2020-14316, CVE-2025-64324 (hostDisk), CVE-2024-31419 (downwardMetrics): refused, twice."""
    volumes = [{"name": "d0", **source}]
    assert create(manifest(volumes=volumes)).code != 201
    with pytest.raises(UnsupportedSpecError):
        render(vmi(spec={"volumes": volumes}), CONFIG)


def test_labels_make_no_owner() -> None:
    """CVE-2025-64435: only the controller reference, by UID."""
    plain = plain_pod()
    assert owner_uid(from_plain(plain, Pod)) == UID
    del plain["metadata"]["ownerReferences"][0]["controller"]
    assert owner_uid(from_plain(plain, Pod)) != UID
    del plain["metadata"]["ownerReferences"]
    assert owner_uid(from_plain(plain, Pod)) != UID


# Text that becomes XML or a command line

EVIL = '"><qemu:commandline><qemu:arg value="-drive"/></qemu:commandline><x a=\'&'


def test_text_of_a_spec_stays_text_in_the_domain() -> None:
    """CVE-2026-48755, CVE-2026-44210: nothing that a user writes becomes an element or an attribute."""
    firmware = {"serial": EVIL, "uuid": "6e311d7c-7bc3-4420-8f30-ea6a144a4f7b"}
    plain = ET.fromstring(to_xml(convert(context_of(Case(domain={"firmware": firmware | {"serial": "x"}})))))
    evil = ET.fromstring(to_xml(convert(context_of(Case(domain={"firmware": firmware}), name=EVIL))))
    assert [e.tag for e in evil.iter()] == [e.tag for e in plain.iter()]
    assert [sorted(e.attrib) for e in evil.iter()] == [sorted(e.attrib) for e in plain.iter()]


@pytest.mark.parametrize("size", [2049, 1 << 20])
def test_inline_cloud_init_is_bounded(size: int) -> None:
    """CVE-2026-41648: what becomes an ISO on the node has a limit at the door."""
    verdict = create(
        manifest(
            volumes=[
                {"name": "d0", "containerDisk": {"image": "i"}},
                {"name": "c", "cloudInitNoCloud": {"userData": "x" * size}},
            ]
        )
    )
    assert verdict.code != 201
    assert any("cloudInitNoCloud" in field for field in verdict.fields), verdict
