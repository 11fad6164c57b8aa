"""Block sizes that are taken from the volume."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.parts import paths_in, plain_vmi
from virt_launcher.disks.block_sizes import bounded, matched
from virt_launcher.disks.prepare import DiskPreparer
from virt_launcher.disks.sources import BlockSizes, DiskSource
from virt_launcher.errors import InvalidVMIError
from virt_launcher.process.children import Children

MIB = 1 << 20


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ((512, 512, 512), (512, 512, 512)),
        ((512, 4096, 0), (512, 4096, 0)),
        ((4096, 4096, MIB), (4096, 4096, MIB)),
        ((0, 4096, 0), (4096, 4096, 0)),
        ((512, 0, 0), (512, 512, 0)),
        ((0, 0, 0), (512, 512, 0)),
        ((4096, 512, 0), (4096, 4096, 0)),
        ((MIB, MIB, MIB), (4096, MIB, MIB)),
        ((512, 8 * MIB, 0), (512, 2 * MIB, 0)),
        ((520, 5000, 0), (512, 4096, 0)),
        ((4096, 4096, 512), (4096, 4096, 4096)),
    ],
)
def test_what_is_said_becomes_what_qemu_takes(said: tuple[int, int, int], taken: tuple[int, int, int]) -> None:
    assert bounded(*said) == BlockSizes(*taken)


def test_a_file_has_the_size_of_its_file_system(tmp_path: Path) -> None:
    def disk(name: str, **block_size: Any) -> dict[str, Any]:
        return {"name": name, "blockSize": block_size}

    disks = [disk("a", matchVolume={}), disk("b", matchVolume={"enabled": False}), {"name": "c"}]
    volumes = [{"name": name, "emptyDisk": {"capacity": "1Mi"}} for name in "abc"]
    asked = plain_vmi(domain={"memory": {"guest": "64Mi"}, "devices": {"disks": disks}}, volumes=volumes)
    sources = DiskPreparer(paths_in(tmp_path), Children()).prepare(asked).sources
    size = os.statvfs(tmp_path).f_bsize
    assert {name: source.blocks for name, source in sources.items()} == {
        "a": bounded(size, size, size),
        "b": None,
        "c": None,
    }


def test_an_image_that_is_still_made_has_the_size_of_its_directory(tmp_path: Path) -> None:
    size = os.statvfs(tmp_path).f_bsize
    assert matched(DiskSource(str(tmp_path / "later.iso"), "raw"), "f").blocks == bounded(size, size, size)


@pytest.mark.parametrize("name", ["gone", "file"])
def test_what_is_no_device_is_refused_with_the_field(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidVMIError, match=f"block size of .*{name} cannot be found out: ") as caught:
        matched(DiskSource(str(tmp_path / name), "raw", block=True), "spec.f")
    assert caught.value.field == "spec.f"
