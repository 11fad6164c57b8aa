"""Whether a contract can still be spoken by who was built with an older one.

A launcher lives as long as its guest, so for months it may talk to a handler that is newer. On the wire a field is its
number and type; in logs and tools it is its name. None of them changes, and nothing that was there goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pb2 import ServiceDescriptorProto as Service


def compile_protos(root: Path, sources: Iterable[str], out: Path) -> dict[str, FileDescriptorProto]:
    """The descriptors of .proto files, by path, without comments."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    target = out / "all.binpb"
    code = protoc.main(["protoc", f"-I{root}", f"-I{_well_known()}", f"-o{target}", *sources])
    assert code == 0, "protoc failed"
    found = FileDescriptorSet.FromString(target.read_bytes())
    return {file.name: file for file in found.file}


def _well_known() -> str:
    import grpc_tools

    return str(Path(grpc_tools.__file__).parent / "_proto")


def read_frozen(directory: Path) -> dict[str, FileDescriptorProto]:
    frozen = [text_format.Parse(path.read_text(), FileDescriptorProto()) for path in sorted(directory.glob("*.textpb"))]
    return {file.name: file for file in frozen}


def broken(old: FileDescriptorProto, new: FileDescriptorProto) -> list[str]:
    """What an older peer would stumble over, each as a sentence."""
    if old.package != new.package:
        return [f"{old.name}: the package {old.package} is now {new.package}"]
    return [
        *_messages(old.package, old.message_type, new.message_type),
        *_enums(old.package, old.enum_type, new.enum_type),
        *_services(old.package, old.service, new.service),
    ]


def _pairs(where: str, old: Iterable[Any], new: Iterable[Any]) -> Iterator[tuple[str, Any, Any | None]]:
    known = {each.name: each for each in new}
    for each in old:
        yield f"{where}.{each.name}", each, known.get(each.name)


def _messages(where: str, old: Iterable[DescriptorProto], new: Iterable[DescriptorProto]) -> Iterator[str]:
    for name, before, after in _pairs(where, old, new):
        if after is None:
            yield f"message {name} is gone"
            continue
        yield from _fields(name, before, after)
        yield from _messages(name, before.nested_type, after.nested_type)
        yield from _enums(name, before.enum_type, after.enum_type)


def _fields(where: str, old: DescriptorProto, new: DescriptorProto) -> Iterator[str]:
    numbers = {field.number: field for field in new.field}
    for before in old.field:
        after = numbers.get(before.number)
        if after is None:
            yield f"{where}: field {before.number} ({before.name}) is gone"
            continue
        for part in ("name", "type", "label", "type_name", "proto3_optional"):
            was, is_now = getattr(before, part), getattr(after, part)
            if was != is_now:
                yield f"{where}: field {before.number} ({before.name}) had {part} {was!r} and has {is_now!r}"
        if _oneof(old, before) != _oneof(new, after):
            yield f"{where}: field {before.number} ({before.name}) is in another oneof"


def _oneof(message: DescriptorProto, field: Any) -> str:
    return message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""


def _enums(where: str, old: Iterable[EnumDescriptorProto], new: Iterable[EnumDescriptorProto]) -> Iterator[str]:
    for name, before, after in _pairs(where, old, new):
        if after is None:
            yield f"enum {name} is gone"
            continue
        values = {value.number: value.name for value in after.value}
        for value in before.value:
            if values.get(value.number) != value.name:
                yield f"enum {name}: {value.number} was {value.name} and is {values.get(value.number, 'gone')}"


def _services(where: str, old: Iterable[Service], new: Iterable[Service]) -> Iterator[str]:
    for name, before, after in _pairs(where, old, new):
        methods = {method.name: method for method in after.method} if after is not None else {}
        for method in before.method:
            now = methods.get(method.name)
            if now is None:
                yield f"rpc {name}.{method.name} is gone"
                continue
            for part in ("input_type", "output_type", "client_streaming", "server_streaming"):
                if getattr(method, part) != getattr(now, part):
                    yield f"rpc {name}.{method.name}: {part} was {getattr(method, part)}, is {getattr(now, part)}"
