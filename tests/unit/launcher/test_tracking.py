"""The layer over a raw disk that tracks its changes: made as QEMU takes it, kept while it is true, else replaced."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.launcher.parts import paths_in, plain_vmi
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.vmistatus import ChangedBlockTrackingStatus, VolumeStatus
from virt_launcher.disks.prepare import DiskPreparer
from virt_launcher.disks.sources import DiskSource
from virt_launcher.disks.tracking import Layer, is_ours, lay
from virt_launcher.process.children import Children

SIZE = 5 << 20


@pytest.fixture
def layer(tmp_path: Path) -> Layer:
    disk = tmp_path / "disk.img"
    disk.write_bytes(b"\x07" * SIZE)
    os.utime(disk, ns=(0, 10**18))
    return Layer(tmp_path, "data.claim.qcow2", str(disk), SIZE, "spec.volumes[0]")


def laid(layer: Layer, *, in_use: bool = False) -> DiskSource:
    return lay(DiskSource(layer.data, "raw", direct_io=False), layer, in_use=in_use)


def number(layer: Layer) -> int:
    return layer.path.stat().st_ino


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")
@pytest.mark.parametrize("size", [SIZE, (3 << 20) + 512, 600 << 30])
def test_qemu_takes_it_for_the_whole_disk(layer: Layer, size: int) -> None:
    os.truncate(layer.data, size)
    layer = replace(layer, size=size)
    laid(layer)
    subprocess.run(["qemu-img", "check", "-q", layer.path], check=True)
    shown = json.loads(subprocess.check_output(["qemu-img", "info", "--output=json", layer.path]))
    assert (shown["virtual-size"], shown["format-specific"]["data"]["data-file"]) == (size, layer.data)
    assert shown["format-specific"]["data"]["data-file-raw"] is True
    if size < 1 << 30:
        subprocess.run(["qemu-img", "compare", "-q", "-f", "raw", "-F", "qcow2", layer.data, layer.path], check=True)
    assert layer.path.stat().st_blocks * 512 < 8 << 20


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")
def test_bitmaps_do_not_make_it_a_strange_one(layer: Layer) -> None:
    laid(layer)
    subprocess.run(["qemu-img", "bitmap", "--add", layer.path, "monday"], check=True)
    before = number(layer)
    laid(layer)
    assert number(layer) == before


def test_it_is_kept_while_it_is_newer_than_the_disk(layer: Layer) -> None:
    source = laid(layer)
    assert (source.path, source.format) == (str(layer.path), "qcow2")
    assert source.layer is not None
    before = number(layer)
    laid(layer)
    assert number(layer) == before
    os.utime(layer.data, ns=(0, 3 * 10**18))
    laid(layer, in_use=True)  # A machine on another node writes to the disk just now.
    assert number(layer) == before
    laid(layer)
    assert number(layer) != before


def damage(start: bytes, layer: Layer, kind: str) -> bytes:
    name = layer.data.encode()
    changes = {
        "magic": b"QFX" + start[3:],
        "backing": start[:8] + (200).to_bytes(8, "big") + start[16:],
        "size": start[:24] + (SIZE * 2).to_bytes(8, "big") + start[32:],
        "plain": start[:72] + bytes(8) + start[80:],
        "another disk": start.replace(name, name[:-1] + b"X"),
        "an extension": start[:112 + len(name) + -len(name) % 8] + b"\xe2\x79\x2a\xca\0\0\0\3raw" + bytes(90),
        "short": start[:50],
    }  # fmt: skip
    return changes[kind]


@pytest.mark.parametrize("kind", ["magic", "backing", "size", "plain", "another disk", "an extension", "short"])
def test_a_layer_that_is_not_as_we_make_it_is_replaced(layer: Layer, kind: str) -> None:
    """A qcow2 can name other files of the Pod, and the claim is the user's."""
    laid(layer)
    start = layer.path.read_bytes()[:4096]
    assert is_ours(start, layer.data, SIZE)
    bad = damage(start, layer, kind)
    assert not is_ours(bad, layer.data, SIZE)
    layer.path.write_bytes(bad)
    laid(layer)
    assert is_ours(layer.path.read_bytes()[:4096], layer.data, SIZE)


def test_a_link_in_its_place_is_replaced_and_not_followed(layer: Layer, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    layer.path.symlink_to(victim)
    laid(layer)
    assert not layer.path.is_symlink()
    assert victim.read_bytes() == b"precious"


def test_which_disks_get_one(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    disks = [{"name": "data"}, {"name": "shared", "shareable": True}, {"name": "cd", "cdrom": {"bus": "sata"}}]
    volumes = [{"name": each["name"], "persistentVolumeClaim": {"claimName": each["name"]}} for each in disks]
    vmi = plain_vmi(volumes=volumes, domain={"memory": {"guest": "64Mi"}, "devices": {"disks": disks}})
    for each in disks:
        paths.disk_directory(str(each["name"])).mkdir(parents=True)
        info = {"claimName": each["name"], "volumeMode": "Filesystem", "requests": {"storage": "2Mi"}}
        status = {"name": each["name"], "persistentVolumeClaimInfo": info}
        vmi.status.volume_status.append(from_plain(status, VolumeStatus))
    vmi.status.changed_block_tracking = ChangedBlockTrackingStatus(state="Initializing")
    # Without the directory of the claim the machine starts all the same.
    plain = DiskPreparer(paths, Children()).prepare(vmi)
    assert {source.format for source in plain.sources.values()} == {"raw"}
    (paths.kept_state / names.KEPT_BLOCKS).mkdir(parents=True)
    prepared = DiskPreparer(paths, Children()).prepare(vmi)
    assert {name: source.format for name, source in prepared.sources.items()} == {
        "data": "qcow2",
        "shared": "raw",
        "cd": "raw",
    }
    assert prepared.sources["data"].path.endswith("/cbt/data.data.qcow2")
    assert len(prepared.identities()) == 4
    vmi.status.changed_block_tracking = ChangedBlockTrackingStatus(state="Disabled")
    assert DiskPreparer(paths, Children()).prepare(vmi).sources["data"].format == "raw"
