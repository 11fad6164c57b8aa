"""What runs in the build stages: which files are taken, and how they arrive in the image."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INSIDE = ROOT / "hack/images/inside"
sys.path.append(str(INSIDE))

import files  # noqa: E402
import tree  # noqa: E402
import wheels  # noqa: E402


def test_links_bring_along_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/real.so.1.2").write_text("x")
    (tmp_path / "lib/real.so.1").symlink_to("real.so.1.2")
    (tmp_path / "old").symlink_to("lib")
    found = files.with_targets([str(tmp_path / "old/real.so.1")])
    assert found == {str(tmp_path / "lib/real.so.1"), str(tmp_path / "lib/real.so.1.2")}


def test_a_folder_means_all_in_it_but_what_is_left_out(tmp_path: Path) -> None:
    for name in ("a/one", "a/b/two", "a/b/three.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = sorted(files.expand([str(tmp_path / "a")], ["*.txt"]))
    assert found == [str(tmp_path / "a/b/two"), str(tmp_path / "a/one")]


def test_a_name_that_does_not_exist_ends_the_build() -> None:
    with pytest.raises(SystemExit, match="nothing here is named /no/such"):
        list(files.expand(["/no/such*"], []))


def test_nothing_arrives_with_the_right_to_run_as_another(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("x")
    program.chmod(0o6755)
    files.copy(str(program), tmp_path / "tree")
    assert (tmp_path / "tree" / str(program).lstrip("/")).stat().st_mode & 0o7777 == 0o755


def test_a_program_brings_its_libraries_and_their_packages(tmp_path: Path) -> None:
    """On this very machine: its shell, as a Debian package knows it."""
    if shutil.which("dpkg") is None:
        pytest.skip("no Debian here")
    done = subprocess.run(
        [sys.executable, str(INSIDE / "files.py"), "--to", str(tmp_path / "tree"), "/usr/bin/env"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tree/usr/bin/env").exists()
    assert (tmp_path / "tree/lib").readlink() == Path("usr/lib")
    records = {path.name for path in (tmp_path / "tree/var/lib/dpkg/status.d").iterdir()}
    assert {"coreutils", "libc6"} <= records
    assert (tmp_path / "tree/usr/bin/env").stat().st_mtime == 0


def test_a_lower_layer_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "below" / str(tmp_path).lstrip("/")).mkdir(parents=True)
    for name in ("old", "new"):
        (tmp_path / name).write_text(name)
    (tmp_path / "below" / str(tmp_path / "old").lstrip("/")).touch()
    files.take({str(tmp_path / "old"), str(tmp_path / "new")}, tmp_path / "tree", [tmp_path / "below"])
    assert [path.name for path in (tmp_path / "tree").rglob("*") if path.is_file()] == ["new"]


def test_packages_lose_what_nobody_reads(tmp_path: Path) -> None:
    for name in ("p/__init__.py", "p/x.pyi", "p/tests/test_x.py", "bin/tool", "p-1.dist-info/METADATA", "q/keep.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    wheels.prune(tmp_path, (*wheels.NEVER_READ, "q/*"))
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["p", "p-1.dist-info", "p-1.dist-info/METADATA", "p/__init__.py"]


@pytest.mark.parametrize("sources", [True, False])
def test_bytecode_is_never_compared_with_its_source(tmp_path: Path, sources: bool) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "module.py").write_text("print(__file__)\n")
    tree.compile_all(tmp_path, folder, sources=sources)
    name = f"__pycache__/module.{sys.implementation.cache_tag}.pyc" if sources else "module.pyc"
    content = (folder / name).read_bytes()
    # PEP 552: the flags say that a hash is kept, and not that it is compared.
    assert content[4:8] == b"\x01\0\0\0"
    assert b"/lib/module.py" in content
    assert str(tmp_path).encode() not in content
    assert (folder / "module.py").exists() is sources
