"""Flags, their environment variables, and the decisions about this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from virt_launcher.hypervisor.daemon import Daemon, tail
from virt_launcher.hypervisor.kvm import kvm_usable
from virt_launcher.process.children import Children
from virt_launcher.settings import Paths, parse

FLAGS = ["--name", "vm1", "--namespace", "ns", "--uid", "u"]


def test_flags_win_over_the_environment() -> None:
    environ = {
        "VIRT_LAUNCHER_NAME": "other",
        "VIRT_LAUNCHER_QEMU_TIMEOUT": "7",
        "VIRT_LAUNCHER_ALLOW_EMULATION": "true",
    }
    settings = parse(FLAGS, environ)
    assert (settings.name, settings.qemu_timeout_s, settings.allow_emulation) == ("vm1", 7.0, True)
    assert settings.domain_name == "ns_vm1"
    assert settings.paths == Paths()


@pytest.mark.parametrize(("argv", "words"), [([], "--name"), ([*FLAGS[:4], "--uid", "../x"], "not a path")])
def test_what_is_missing_is_named(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(argv, {})
    assert words in capsys.readouterr().err


def test_a_launcher_starts_its_machine_unless_it_is_told_that_one_moves_in() -> None:
    assert not parse(FLAGS, {}).receives
    assert parse([*FLAGS, "--role", "target"], {}).receives
    assert parse(FLAGS, {"VIRT_LAUNCHER_ROLE": "target"}).receives


@pytest.mark.parametrize(("more", "environ"), [(["--role", "source"], {}), ([], {"VIRT_LAUNCHER_ROLE": "x"})])
def test_other_roles_have_no_launcher(
    more: list[str], environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([*FLAGS, *more], environ)
    assert "--role must be active or target" in capsys.readouterr().err


def test_a_probe_needs_no_vmi() -> None:
    assert parse(["--node-probe", "/x"], {}).node_probe == Path("/x")


def test_paths_of_the_contract() -> None:
    paths = Paths()
    assert str(paths.command_socket) == "/var/run/kubevirt/sockets/launcher-sock"
    assert str(paths.machine_dir("u")) == "/var/run/kubevirt-private/u"
    assert str(paths.secret("ci")) == "/var/run/kubevirt-private/secret/ci"


@pytest.mark.parametrize(("flags", "usable"), [("fpu vmx sse", True), ("fpu svm", True), ("fpu sse", False)])
def test_kvm_needs_the_device_and_the_processor(tmp_path: Path, flags: str, usable: bool) -> None:
    cpuinfo, device = tmp_path / "cpuinfo", tmp_path / "kvm"
    cpuinfo.write_text(f"processor : 0\nflags\t\t: {flags}\n")
    assert not kvm_usable(str(device), cpuinfo)
    device.touch()
    assert kvm_usable(str(device), cpuinfo) is usable


def test_where_there_is_no_list_of_flags_the_device_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo, device = tmp_path / "cpuinfo", tmp_path / "kvm"
    cpuinfo.write_text("processor : 0\nFeatures\t: fp asimd\n")
    device.touch()
    for machine, usable in (("aarch64", True), ("x86_64", False)):
        monkeypatch.setattr("os.uname", lambda machine=machine: SimpleNamespace(machine=machine))
        assert kvm_usable(str(device), cpuinfo) is usable


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    monkeypatch.setattr("virt_launcher.hypervisor.daemon.shutil.which", lambda name, path: f"/usr/sbin/{name}")
    return Daemon(Paths(private=tmp_path / "p", libvirt=tmp_path / "l"), Children())


def test_the_modular_daemon_is_preferred(daemon: Daemon) -> None:
    assert daemon.binary == "/usr/sbin/virtqemud"
    assert daemon.uri.endswith("/l/virtqemud-sock")
    daemon.binary = "/usr/sbin/libvirtd"
    assert daemon.uri.endswith("/l/libvirt-sock")


def test_configuration_files(daemon: Daemon, tmp_path: Path) -> None:
    text = daemon._write_config().read_text()
    assert f'unix_sock_dir = "{tmp_path}/l"' in text
    assert "listen_tls" not in text  # virtqemud does not know it and would refuse to start.
    daemon.binary = "/usr/sbin/libvirtd"
    assert "listen_tls = 0" in daemon._write_config().read_text()
    assert 'stdio_handler = "file"' in (tmp_path / "p/config/libvirt/qemu.conf").read_text()


def test_tail(tmp_path: Path) -> None:
    assert tail(tmp_path / "absent") == ""
    (tmp_path / "log").write_text("x" * 100 + "\nlast\n")
    assert tail(tmp_path / "log", 5) == "last"
