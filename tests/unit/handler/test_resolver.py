"""The name servers of a guest: its Pod's, with what the spec asks for, and nothing that a Pod could smuggle in."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework.vmis import POD_UID, vmi

from virt_handler.decisions import nameservers
from virt_handler.decisions.nameservers import Resolver
from virt_handler.pods import isolation, resolver

POD_FILE = "# made by the node\nsearch ns.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"


@pytest.fixture
def pod_file(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    content = [POD_FILE.encode()]
    monkeypatch.setattr(isolation, "read_file", lambda *_: content[0])
    return content


def test_the_pods_servers_and_searches_are_taken(pod_file: list[bytes]) -> None:
    assert resolver.of_vmi(vmi(), POD_UID) == Resolver(("10.96.0.10",), ("ns.svc.cluster.local", "svc.cluster.local"))


def test_the_spec_adds_to_them(pod_file: list[bytes]) -> None:
    spec = {"dnsConfig": {"nameservers": ["1.1.1.1", "10.96.0.10"], "searches": ["example."]}}
    assert resolver.of_vmi(vmi(spec=spec), POD_UID) == Resolver(
        ("1.1.1.1", "10.96.0.10"), ("ns.svc.cluster.local", "svc.cluster.local", "example")
    )


def test_policy_none_takes_only_the_spec(pod_file: list[bytes]) -> None:
    spec = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["01.1.001.1"]}}
    assert resolver.of_vmi(vmi(spec=spec), POD_UID) == Resolver(("1.1.1.1",))


def test_the_last_search_line_counts_and_comments_do_not() -> None:
    text = "domain a\n; nameserver 9.9.9.9\nnameserver 8.8.8.8 # why\nsearch b c\nnameserver\n"
    assert nameservers.parse(text) == Resolver(("8.8.8.8",), ("b", "c"))


@pytest.mark.parametrize("server", ["127.0.0.53", "::1", "fe80::1", "0.0.0.0", "x", "1.1.1.1,option:router,6.6.6.6"])
def test_servers_that_are_none_for_the_guest_are_left_out(pod_file: list[bytes], server: str) -> None:
    pod_file[0] = f"nameserver {server}\nnameserver 9.9.9.9\n".encode()
    assert resolver.of_vmi(vmi(), POD_UID).servers == ("9.9.9.9",)


def test_searches_with_other_signs_are_left_out(pod_file: list[bytes]) -> None:
    pod_file[0] = b"search ok.example a,b --user=root -x $(id) \xff\xff good\n"
    assert resolver.of_vmi(vmi(), POD_UID).searches == ("ok.example", "good")


def test_endless_lists_are_cut(pod_file: list[bytes]) -> None:
    lines = [f"nameserver 10.0.{n // 250}.{n % 250 + 1}" for n in range(1000)]
    pod_file[0] = "\n".join([*lines, "search " + " ".join(f"d{n}" for n in range(1000))]).encode()
    found = resolver.of_vmi(vmi(), POD_UID)
    assert (len(found.servers), len(found.searches)) == (nameservers.MAX_SERVERS, nameservers.MAX_SEARCHES)


def test_a_file_that_can_not_be_read_leaves_the_guest_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(40, "a link")

    monkeypatch.setattr(isolation, "read_file", refuse)
    assert resolver.of_vmi(vmi(), POD_UID) == Resolver()


class FakeProc:
    """A /proc with one process of the Pod whose root is a directory of ours."""

    def __init__(self, base: Path) -> None:
        self.proc, self.root = base / "proc", base / "root"
        (self.root / "etc").mkdir(parents=True)
        for name, mounts in (("self", "own"), ("42", "other")):
            directory = self.proc / name
            (directory / "ns").mkdir(parents=True)
            (self.proc / mounts).touch()
            (directory / "ns" / "mnt").symlink_to(self.proc / mounts)
        (self.proc / "42" / "root").symlink_to(self.root)
        (self.proc / "42" / "cgroup").write_text(f"0::/kubepods/pod{POD_UID}/abc\n")

    def read(self) -> bytes:
        return isolation.read_file(POD_UID, resolver.PATH, resolver.MAX_BYTES, str(self.proc))


@pytest.fixture
def fake_proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_the_file_is_read_beneath_the_process_root(fake_proc: FakeProc) -> None:
    (fake_proc.root / "etc" / "resolv.conf").write_text(POD_FILE)
    assert fake_proc.read() == POD_FILE.encode()


def test_links_and_large_files_are_refused(fake_proc: FakeProc, tmp_path: Path) -> None:
    """The Pod's root is the VM's own: a link in it would be followed on the node."""
    secret = tmp_path / "secret"
    secret.write_text("nameserver 6.6.6.6")
    target = fake_proc.root / "etc" / "resolv.conf"
    for link in (str(secret), "../../secret"):
        target.symlink_to(link)
        with pytest.raises(OSError, match="Too many levels of symbolic links"):
            fake_proc.read()
        target.unlink()
    target.write_bytes(b"#" * (resolver.MAX_BYTES + 1))
    with pytest.raises(OSError, match="larger than"):
        fake_proc.read()


def test_a_process_with_the_nodes_mounts_is_not_asked(fake_proc: FakeProc) -> None:
    (fake_proc.root / "etc" / "resolv.conf").write_text(POD_FILE)
    (fake_proc.proc / "42" / "ns" / "mnt").unlink()
    (fake_proc.proc / "42" / "ns" / "mnt").symlink_to(fake_proc.proc / "own")
    with pytest.raises(isolation.NoNamespaceError):
        fake_proc.read()
