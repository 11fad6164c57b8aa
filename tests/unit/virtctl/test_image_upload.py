"""The parts of `virtctl image-upload` that need no cluster."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from virtctl.imageupload import tunnel
from virtctl.imageupload.bar import Bar
from virtctl.imageupload.command import _data_volume
from virtctl.imageupload.send import SendError, _judge, disk_size

GIVEN = {
    "size": "", "storage_class": "", "access_mode": "", "volume_mode": None, "force_bind": False,
    "default_instancetype": "", "default_instancetype_kind": "", "default_preference": "",
    "default_preference_kind": "",
}  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_piped_there_is_a_line_for_every_tenth() -> None:
    said = io.StringIO()
    bar = Bar(1000 << 20, said)
    for done in range(0, 1001):
        bar.show(done << 20)
    bar.end()
    lines = said.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0] == "0% of 1000.0 MiB sent"
    assert lines[-1] == "100% of 1000.0 MiB sent"


def test_on_a_terminal_one_line_is_drawn_anew() -> None:
    said = Terminal()
    bar = Bar(100, said)
    bar.show(100)
    bar.end()
    assert said.getvalue().startswith("\r\x1b[K[" + "#" * 30 + "] 100.0%")
    assert said.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (b"QFI\xfb" + bytes(20) + (5 << 30).to_bytes(8, "big") + bytes(600), 5 << 30),
        (bytes(4096), 4096),
        (b"KDMV" + bytes(600), 0),
        (bytes(64) + b"\x7f\x10\xda\xbe" + bytes(600), 0),
        (b"\x1f\x8b" + bytes(600), 0),
    ],
)
def test_the_size_of_a_disk_is_known_where_that_is_simple(tmp_path: Path, content: bytes, size: int) -> None:
    path = tmp_path / "disk"
    path.write_bytes(content)
    assert disk_size(path) == size


def test_the_data_volume(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(4096))
    given = GIVEN | {
        "volume_mode": "block",
        "force_bind": True,
        "default_preference_kind": "X",
        "storage_class": "fast",
    }
    made = _data_volume("ns", "mine", path, **given)
    assert made.spec["storage"] == {
        "resources": {"requests": {"storage": "4096"}}, "storageClassName": "fast", "volumeMode": "Block",
    }  # fmt: skip
    assert made.metadata.labels == {"instancetype.kubevirt.io/default-preference-kind": "X"}
    assert made.metadata.annotations == {"cdi.kubevirt.io/storage.bind.immediate.requested": ""}


def test_what_the_importer_answers() -> None:
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nqcow2"
    assert tunnel._is_whole(good)
    assert not tunnel._is_whole(good[:-1])
    assert _judge(good) == "qcow2"
    for code, final in ((400, True), (503, False)):
        with pytest.raises(SendError, match="no") as error:
            _judge(f"HTTP/1.1 {code} X\r\nContent-Length: 2\r\n\r\nno".encode())
        assert error.value.final is final
    with pytest.raises(SendError, match="ended the connection"):
        _judge(b"")
