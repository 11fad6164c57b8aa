"""Who was built with the last release's contracts can talk to this tree: what was promised is still there."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework.protocompat import broken, compile_protos, read_frozen
from google.protobuf.descriptor_pb2 import FileDescriptorProto

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
FROZEN = read_frozen(ROOT / "tests" / "golden" / "contracts")


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FileDescriptorProto]:
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("virt_protos/*/v1/*.proto"))
    return compile_protos(PROTOS, sources, tmp_path_factory.mktemp("protos"))


@pytest.mark.parametrize("name", sorted(FROZEN))
def test_contract_of_the_last_release_still_holds(name: str, current: dict[str, FileDescriptorProto]) -> None:
    assert name in current, f"{name} is gone"
    assert broken(FROZEN[name], current[name]) == []


def test_every_contract_is_frozen(current: dict[str, FileDescriptorProto]) -> None:
    """A new contract joins the frozen ones with the release that brings it."""
    ours = {name for name in current if name.startswith("virt_protos/")}
    assert {name.split("/")[1] for name in FROZEN} <= {name.split("/")[1] for name in ours}
    assert {"launcher", "notify", "node"} <= {name.split("/")[1] for name in FROZEN}


LAUNCHER = "virt_protos/launcher/v1/launcher.proto"


def changed(edit: str) -> FileDescriptorProto:
    """The frozen contract with one change in it."""
    file = FileDescriptorProto()
    file.CopyFrom(FROZEN[LAUNCHER])
    hello = file.message_type[0]
    assert hello.name == "HelloRequest"
    if edit == "number":
        hello.field[1].number = 9
    elif edit == "name":
        hello.field[1].name = "build"
    elif edit == "type":
        hello.field[1].type = hello.field[1].TYPE_BYTES
    elif edit == "label":
        hello.field[0].label = hello.field[0].LABEL_OPTIONAL
    elif edit == "message":
        del file.message_type[0]
    elif edit == "enum":
        file.enum_type[0].value[1].number = 99
    elif edit == "rpc":
        del file.service[0].method[0]
    elif edit == "streaming":
        file.service[0].method[0].server_streaming = True
    elif edit == "package":
        file.package = "virtpod.launcher.v2"
    return file


@pytest.mark.parametrize("edit", ["number", "name", "type", "label", "message", "enum", "rpc", "streaming", "package"])
def test_every_kind_of_break_is_noticed(edit: str) -> None:
    assert broken(FROZEN[LAUNCHER], changed(edit))


def test_additions_break_nothing() -> None:
    file = changed("")
    file.message_type[0].field.add(name="more", number=77, type=9, label=1)
    file.message_type.add(name="NewRequest")
    file.service[0].method.add(name="New", input_type=".x.NewRequest", output_type=".x.NewRequest")
    file.enum_type[0].value.add(name="NEW", number=99)
    assert broken(FROZEN[LAUNCHER], file) == []
