"""Certificates on disk: what is read belongs together, what is written is swapped at once, what ends is known."""

from __future__ import annotations

import base64
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from framework.certs import CertAuthority, Leaf
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_core.kube.secretfiles import SecretFiles
from virt_core.rpc.tls import TlsFiles, TlsMaterial
from virt_core.runtime.keypair import EXPIRY, BadPair, check_bundle, check_pair, not_after
from virt_core.runtime.settings import duration
from virt_core.runtime.swap import write_files
from virt_core.runtime.x509 import SERVER, Pair, load_pair, make_authority, make_leaf, pem, says, throw_away
from virt_core.runtime.x509 import Leaf as Role

SECRET = "/api/v1/namespaces/virtpod/secrets/virt-handler-tls"
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


@pytest.fixture
def ca() -> CertAuthority:
    return CertAuthority()


def files_of(leaf: Leaf) -> dict[str, bytes]:
    return {"tls.crt": leaf.cert, "tls.key": leaf.key, "ca.crt": leaf.ca}


# Pairs.


@pytest.mark.parametrize("years", [1, 30, 100])
def test_the_end_of_a_certificate_is_read_without_a_library(years: int) -> None:
    """As UTCTime and, from 2050 on, as GeneralizedTime; of a chain the first one counts."""
    life = timedelta(days=365 * years)
    made = make_authority("x", NOW, life)
    other = make_authority("y", NOW, timedelta(days=1))
    assert not_after(made.cert_pem + other.cert_pem) == NOW + life
    assert check_pair(made.cert_pem, made.key_pem) == NOW + life


@pytest.mark.parametrize("text", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"])
def test_what_is_no_certificate_is_refused(text: bytes) -> None:
    with pytest.raises(BadPair):
        not_after(text)
    with pytest.raises(BadPair):
        check_bundle(text)


def test_a_foreign_key_is_refused_and_not_shown(ca: CertAuthority) -> None:
    one, other = ca.issue("a"), ca.issue("b")
    with pytest.raises(BadPair, match="KEY_VALUES_MISMATCH") as refused:
        check_pair(one.cert, other.key)
    assert "PRIVATE" not in str(refused.value)
    with pytest.raises(ValueError, match="not the certificate's"):
        load_pair(one.cert, other.key)


def test_a_leaf_ends_with_its_authority_and_begins_before_it_was_made() -> None:
    authority = make_authority("a", NOW, timedelta(hours=1))
    role = Role("x", names=("x.internal",), usage=(SERVER,))
    leaf = make_leaf(authority, role, NOW, timedelta(days=1)).certificate
    assert leaf.not_valid_after_utc == NOW + timedelta(hours=1)
    assert leaf.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert says(leaf, role)
    assert not says(leaf, Role("x", names=("x.internal", "y.internal"), usage=(SERVER,)))
    assert not says(leaf, Role("x", names=("x.internal",)))


def test_keys_are_not_in_anybodys_text(ca: CertAuthority) -> None:
    leaf = ca.issue("a")
    assert "PRIVATE" not in repr(TlsMaterial(leaf.key, leaf.cert, leaf.ca))
    assert "PRIVATE" not in repr(throw_away("x", NOW))
    assert isinstance(throw_away("x", NOW), Pair)


# Reading.


def test_a_half_done_change_is_not_taken(tmp_path: Path, ca: CertAuthority) -> None:
    """Key and certificate are written one after the other: in between the old pair is used."""
    directory = ca.issue("old").write(tmp_path)
    tls = TlsFiles(directory)
    before, new = tls.current(), ca.issue("new")
    (directory / "tls.crt").write_bytes(new.cert)
    assert tls.current() == before
    (directory / "tls.key").write_bytes(new.key)
    assert tls.current() == TlsMaterial(new.key, new.cert, new.ca)


def test_a_broken_bundle_is_not_taken(tmp_path: Path, ca: CertAuthority) -> None:
    tls = TlsFiles(ca.issue("a").write(tmp_path))
    before = tls.current()
    (tmp_path / "ca.crt").write_bytes(b"")
    assert tls.current() == before


def test_no_reader_ever_sees_two_generations(tmp_path: Path, ca: CertAuthority) -> None:
    """Somebody swaps the files as fast as he can; whoever reads gets one generation, whole."""
    leaves = [CertAuthority(f"ca{i}").issue(f"leaf{i}") for i in range(3)]
    valid = {TlsMaterial(leaf.key, leaf.cert, leaf.ca) for leaf in leaves}
    write_files(tmp_path, files_of(leaves[0]))

    def swap(stop: threading.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            write_files(tmp_path, files_of(leaves[number % 3]))

    seen = set()
    tls = TlsFiles(tmp_path)

    def read() -> bool:
        for _ in range(300):
            seen.add(tls.current())
        return len(seen) > 1  # On a busy machine the other may not have had its turn yet.

    with running(swap):
        eventually(read)
    assert seen <= valid


def test_files_that_may_come_later(tmp_path: Path, ca: CertAuthority) -> None:
    tls = TlsFiles(tmp_path / "d", may_come=True)
    assert not tls.is_there()
    with pytest.raises(FileNotFoundError):
        tls.current()
    leaf = ca.issue("a")
    leaf.write(tmp_path / "d")
    assert tls.is_there()
    assert tls.current().cert == leaf.cert


def test_something_to_show_until_then(tmp_path: Path, ca: CertAuthority) -> None:
    stand_in = throw_away("x", NOW)
    tls = TlsFiles(tmp_path / "d", ca=False, until_there=lambda: TlsMaterial(stand_in.key_pem, stand_in.cert_pem))
    assert not tls.is_there()
    assert tls.current().cert == stand_in.cert_pem
    ca.issue("a").write(tmp_path / "d")
    assert tls.is_there()
    assert tls.current().cert != stand_in.cert_pem


def test_the_end_of_what_is_used_is_a_metric(tmp_path: Path) -> None:
    authority = make_authority("a", datetime.now(UTC), timedelta(hours=1))
    leaf = make_leaf(authority, Role("x"), datetime.now(UTC), timedelta(minutes=10))
    Leaf(leaf.cert_pem, leaf.key_pem, pem(authority.certificate)).write(tmp_path)
    TlsFiles(tmp_path, name="unit-test")
    assert EXPIRY.value("unit-test") == leaf.certificate.not_valid_after_utc.timestamp()


# Writing.


def test_files_are_swapped_at_once_and_private(tmp_path: Path, ca: CertAuthority) -> None:
    previous = os.umask(0)
    try:
        assert write_files(tmp_path / "d", files_of(ca.issue("one")))
    finally:
        os.umask(previous)
    two = files_of(ca.issue("two"))
    assert write_files(tmp_path / "d", two)
    assert not write_files(tmp_path / "d", two)
    assert {path.name for path in (tmp_path / "d").iterdir()} == {"..data", "..version-2", *two}
    for name, data in two.items():
        path = tmp_path / "d" / name
        assert (os.readlink(path), path.read_bytes()) == (f"..data/{name}", data)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "d/..version-2").stat().st_mode) == 0o700


def test_a_writer_that_was_killed_leaves_nothing_in_the_way(tmp_path: Path, ca: CertAuthority) -> None:
    write_files(tmp_path, files_of(ca.issue("one")))
    (tmp_path / "..version-2").mkdir()
    (tmp_path / "..version-2/tls.key").write_text("half")
    (tmp_path / "..data.new").symlink_to("..version-2")
    two = files_of(ca.issue("two"))
    write_files(tmp_path, two)
    assert {name: (tmp_path / name).read_bytes() for name in two} == two


# From a Secret.


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


def secret(contents: dict[str, bytes]) -> dict[str, object]:
    return {"data": {name: base64.b64encode(data).decode() for name, data in contents.items()}}


def test_it_waits_says_for_what_and_follows(tmp_path: Path, kube: FakeKube, ca: CertAuthority) -> None:
    changes: list[str] = []
    files = SecretFiles(kube.client(), "virtpod", "virt-handler-tls", tmp_path, on_change=lambda: changes.append("x"))
    waits = "waiting for Secret virtpod/virt-handler-tls, which virt-controller's leader (or cert-manager) makes"
    assert files.ready() == waits
    assert not files.fetch()
    with running(files.run):
        assert not files.is_there()
        one, two = files_of(ca.issue("one")), files_of(ca.issue("two"))
        kube.put("/api/v1/namespaces/virtpod/secrets/other", secret(two))
        kube.put(SECRET, secret(one))
        eventually(files.is_there)
        assert files.ready() is None
        assert (tmp_path / "tls.crt").read_bytes() == one["tls.crt"]
        kube.put(SECRET, secret(two))
        eventually(lambda: (tmp_path / "tls.crt").read_bytes() == two["tls.crt"])
        eventually(lambda: changes == ["x", "x"])


def test_only_the_one_secret_is_asked_for(tmp_path: Path, kube: FakeKube) -> None:
    """Our rights name it; anything wider is refused."""
    files = SecretFiles(kube.client(), "virtpod", "virt-handler-tls", tmp_path)
    with running(files.run):
        eventually(lambda: [q for _, _, q, _ in kube.requests if q.get("watch")])
    assert {q.get("fieldSelector") for _, _, q, _ in kube.requests} == {"metadata.name=virt-handler-tls"}


@pytest.mark.parametrize("damage", ["foreign key", "no ca", "not base64", "deleted"])
def test_what_is_bad_or_gone_leaves_the_old_files(
    tmp_path: Path, kube: FakeKube, ca: CertAuthority, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = SecretFiles(kube.client(), "virtpod", "virt-handler-tls", tmp_path)
    good = files_of(ca.issue("good"))
    kube.put(SECRET, secret(good))
    bad = secret({**good, "tls.key": ca.issue("other").key})
    if damage == "no ca":
        bad = secret({name: good[name] for name in ("tls.crt", "tls.key")})
    elif damage == "not base64":
        bad = {"data": {**secret(good)["data"], "tls.key": "%%%"}}  # type: ignore[dict-item]
    with running(files.run):
        eventually(files.is_there)
        kube.remove(SECRET) if damage == "deleted" else kube.put(SECRET, bad)
        said = "its files stay" if damage == "deleted" else "the old files stay"
        log = ""

        def told() -> bool:
            nonlocal log
            log += capsys.readouterr().err
            return said in log

        eventually(told)
    assert files.ready() is None
    assert TlsFiles(tmp_path).current().cert == good["tls.crt"]
    assert "PRIVATE" not in log


def test_files_of_an_earlier_run_are_good_without_the_api_server(
    tmp_path: Path, kube: FakeKube, ca: CertAuthority
) -> None:
    write_files(tmp_path, files_of(ca.issue("a")))
    client = kube.client(timeout_s=0.5)
    kube.down()
    files = SecretFiles(client, "virtpod", "virt-handler-tls", tmp_path)
    assert files.ready() is None
    assert files.wait(threading.Event())


def test_the_first_look_and_the_watch_do_not_meet(tmp_path: Path, kube: FakeKube, ca: CertAuthority) -> None:
    """Both see the Secret at the same moment: one writes, the other finds it done."""
    kube.put(SECRET, secret(files_of(ca.issue("a"))))
    for number in range(20):
        directory = tmp_path / str(number)
        files = SecretFiles(kube.client(), "virtpod", "virt-handler-tls", directory)
        with running(files.run):
            for _ in range(3):
                assert files.fetch()
        assert len(list(directory.glob("..version-*"))) == 1


def test_the_wait_ends_with_a_stop(tmp_path: Path, kube: FakeKube) -> None:
    stop = threading.Event()
    stop.set()
    assert not SecretFiles(kube.client(), "virtpod", "virt-handler-tls", tmp_path).wait(stop)


def test_a_directory_that_vanished_is_made_again(tmp_path: Path, ca: CertAuthority) -> None:
    one = files_of(ca.issue("a"))
    write_files(tmp_path / "d", one)
    shutil.rmtree(tmp_path / "d")
    assert write_files(tmp_path / "d", one)


# Settings.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("5m", 300), ("24h", 86400), ("8760h", 31536000), ("1h30m", 5400), ("7d", 604800)],
)
def test_durations(text: str, seconds: int) -> None:
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "10", "-5s", "5 m", "1.5h", "h", "10x"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration(text)
