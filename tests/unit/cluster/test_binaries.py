"""What is built, where it is kept, and what is said when it cannot be built."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cluster import binaries
from tests.cluster.errors import ClusterError

PINNED = {"kubernetes": "v1.36.3", "etcd": "v3.6.8", "coredns": "v1", "containerd": "v2.4.2", "runc": "v1.5.2"}


def test_versions_come_from_the_module_files() -> None:
    found = binaries.versions()
    assert set(found) == set(PINNED)
    assert all(version.startswith("v") for version in found.values())


def test_every_module_pins_by_checksum() -> None:
    for name in binaries.NAMES:
        assert (binaries.MODULES / name / "go.sum").stat().st_size > 0


def test_clients_see_the_version_that_was_built() -> None:
    kube = binaries.targets(PINNED)[0]
    assert any(variable.endswith("gitVersion=v1.36.3") for variable in kube.set_variables)
    assert any(variable.endswith("gitMinor=36") for variable in kube.set_variables)


def test_each_program_is_built_once() -> None:
    programs = [name for target in binaries.targets(PINNED) for name in target.programs]
    assert sorted(programs) == sorted({*programs})
    assert {"kube", "etcd", "coredns", "containerd", "containerd-shim-runc-v2", "ctr", "runc"} == {*programs}


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    return Path(shutil.copytree(binaries.MODULES, tmp_path / "go"))


def test_whatever_changes_the_result_changes_the_directory(modules: Path, tmp_path: Path) -> None:
    first = binaries.directory(tmp_path, modules)
    assert binaries.directory(tmp_path, modules) == first
    assert first.name.startswith("kubernetes-1.")
    sums = modules / "containers" / "go.sum"
    sums.write_text(sums.read_text() + "\n")
    assert binaries.directory(tmp_path, modules) != first


def test_a_module_that_pins_nothing_is_an_error(modules: Path) -> None:
    (modules / "containers" / "go.mod").write_text("module x\n")
    with pytest.raises(ClusterError, match="pin no version of containerd, runc"):
        binaries.versions(modules)


def test_the_cache_is_where_it_was_wished() -> None:
    assert binaries.cache_root({"VIRTPOD_CACHE": "/c"}) == Path("/c")
    assert binaries.cache_root({"XDG_CACHE_HOME": "/x"}) == Path("/x/virtpod")
    assert binaries.cache_root({"HOME": "/h"}) == Path("/h/.cache/virtpod")


def test_what_is_complete_is_not_built_again(tmp_path: Path) -> None:
    place = binaries.directory(tmp_path)
    place.mkdir(parents=True)
    (place / "complete").touch()
    said: list[str] = []
    assert binaries.ensure(said.append, tmp_path) == place
    assert not said


def test_no_go_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"built with Go 1\.\d+\.\d+ or newer, and there is no `go` here"):
        binaries.find_go(str(tmp_path))


@pytest.mark.parametrize("version", ["go1.19.8", "go1.25.9"])
def test_an_old_go_is_one_sentence(tmp_path: Path, version: str) -> None:
    _fake_go(tmp_path, version)
    with pytest.raises(ClusterError, match=rf"need Go 1\.\d+\.\d+ or newer, and {tmp_path}/go is {version}"):
        binaries.find_go(str(tmp_path))


def test_a_newer_go_is_welcome(tmp_path: Path) -> None:
    _fake_go(tmp_path, "go1.99.1")
    assert binaries.find_go(str(tmp_path)) == str(tmp_path / "go")


def _fake_go(directory: Path, version: str) -> None:
    program = directory / "go"
    answer = f'[ "$1" = env ] && echo {version} || echo go version {version} linux/amd64\n'
    program.write_text(f"#!/bin/sh\n{answer}")
    program.chmod(0o755)


def test_a_missing_library_has_a_package() -> None:
    text = "# pkg-config --cflags -- libseccomp\nPackage libseccomp was not found in the pkg-config search path"
    assert "apt-get install libseccomp-dev" in binaries._reason(text)
