"""The client's parts that need no server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from virt_client import AutomationError, Console, Invalid, SettingsError, Timeout
from virt_client.errors import error_of
from virt_client.settings import load
from virt_client.types import kind_of, machine_of
from virt_protos.automation.v1 import automation_pb2 as pb


def kubeconfig(directory: Path, user: dict[str, Any], **cluster: Any) -> str:
    path = directory / "config"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://x", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return str(path)


EXTENSION = [{"name": "virtpod.io/automation", "extension": {"address": "h:1", "certificate-authority-data": "Y2E="}}]


def read(path: str, **given: Any) -> Any:
    return load(path, None, **{"address": None, "token": None, "ca_file": None, **given})


def test_everything_from_the_kubeconfig(tmp_path: Path) -> None:
    found = read(kubeconfig(tmp_path, {"token": "t"}, extensions=EXTENSION))
    assert (found.address, found.token, found.ca_pem, found.namespace) == ("h:1", "t", b"ca", "mine")


def test_what_is_given_wins(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(b"other")
    found = read(kubeconfig(tmp_path, {"token": "t"}, extensions=EXTENSION), address="a:2", token="n", ca_file=str(ca))
    assert (found.address, found.token, found.ca_pem) == ("a:2", "n", b"other")


def test_the_name_in_the_certificate_goes_with_the_address(tmp_path: Path) -> None:
    """Behind a forwarded port or at a Pod's address the certificate still has the service's name."""
    inner = {**EXTENSION[0]["extension"], "tls-server-name": "virt-api.virtpod.svc"}  # type: ignore[dict-item]
    path = kubeconfig(tmp_path, {"token": "t"}, extensions=[{"name": "virtpod.io/automation", "extension": inner}])
    assert read(path).server_name == "virt-api.virtpod.svc"
    assert read(path, address="a:2").server_name == ""


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    found = read(kubeconfig(tmp_path, {"tokenFile": "token"}, extensions=EXTENSION))
    for token in ("one", "two"):
        (tmp_path / "token").write_text(f"{token}\n")
        assert found.token() == token


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="kubectl create token"):
        read(kubeconfig(tmp_path, {"client-certificate-data": "x"}, extensions=EXTENSION))
    with pytest.raises(SettingsError, match="give address="):
        read(kubeconfig(tmp_path, {"token": "t"}))
    with pytest.raises(SettingsError, match="cannot be read"):
        read(str(tmp_path / "absent"))
    (tmp_path / "bad").write_text("a: [")
    with pytest.raises(SettingsError, match="neither JSON nor YAML"):
        read(str(tmp_path / "bad"))


def test_kinds() -> None:
    assert kind_of("vm") == kind_of("VirtualMachine") == pb.KIND_VIRTUAL_MACHINE
    with pytest.raises(ValueError, match="'pod'"):
        kind_of("pod")


def test_a_machine_carries_the_whole_object() -> None:
    machine = machine_of(pb.Object(kind=pb.KIND_VIRTUAL_MACHINE, name="x", json=b'{"spec":{"a":1}}'))
    assert (machine.kind, machine.name, machine.manifest) == ("vm", "x", {"spec": {"a": 1}})
    assert "spec" not in repr(machine)


class Broken(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, metadata: Any = None) -> None:
        self._code, self._metadata = code, metadata

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "why"

    def trailing_metadata(self) -> Any:
        return self._metadata


def test_errors_without_and_with_broken_details() -> None:
    assert isinstance(error_of(Broken(grpc.StatusCode.INVALID_ARGUMENT)), Invalid)
    broken = error_of(Broken(grpc.StatusCode.DATA_LOSS, [("grpc-status-details-bin", b"\xff\xff")]))
    assert (type(broken), broken.message, broken.causes) == (AutomationError, "why", ())


class Guest:
    """The far end of a console: says `lines` and then ends, or fails."""

    def __init__(self, *lines: bytes, failure: grpc.RpcError | None = None) -> None:
        self._lines, self._failure = lines, failure
        self.opened: pb.ConsoleRequest | None = None
        self.cancelled = False

    def __call__(self, requests: Iterator[pb.ConsoleRequest]) -> Guest:
        self.opened = next(requests)
        return self

    def __iter__(self) -> Iterator[pb.ConsoleResponse]:
        yield pb.ConsoleResponse(opened=pb.ConsoleOpened(node_name="n"))
        for line in self._lines:
            yield pb.ConsoleResponse(data=line)
        if self._failure is not None:
            raise self._failure

    def cancel(self) -> None:
        self.cancelled = True


def test_a_console_reads_until_the_end() -> None:
    guest = Guest(b"boot\n", b"lo", b"gin:")
    with Console(guest, pb.Ref(name="x")) as console:
        assert console.expect("login:", timeout_s=5) == len("boot\nlogin:")
        with pytest.raises(Timeout, match="the console ended"):
            console.expect("never", timeout_s=5)
        assert console.ended
    assert guest.cancelled
    assert guest.opened is not None
    assert guest.opened.open.ref.name == "x"


def test_a_console_that_fails_says_why() -> None:
    guest = Guest(failure=Broken(grpc.StatusCode.INVALID_ARGUMENT))
    with Console(guest, pb.Ref(name="x")) as console, pytest.raises(Invalid):
        console.expect("never", timeout_s=5)


def test_a_guest_that_writes_without_end_fills_no_memory() -> None:
    """The reader holds a bounded number of chunks, and lets go when the console is closed."""
    with Console(Guest(*[b"x"] * 10_000), pb.Ref(name="x")) as console:
        assert console.read(5) == b"x"
        assert console._received.qsize() <= 64
