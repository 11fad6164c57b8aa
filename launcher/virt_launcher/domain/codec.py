"""One codec for all of the domain XML.

A dataclass field declares where it stands: `name: str | None = at("driver/@name")`. Emitting walks the fields in their
order of declaration, so that each fact about the document is written down exactly once. Paths are relative to the
element of the class: `a/b/@c` is an attribute, `a/b` is text (or a nested element when the field's type is one of our
classes), `a/b` with `flag` means that the mere presence counts. A step `prefix:name` is in one of the NAMESPACES.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import field
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

from virt_core.runtime.record import record
from virt_launcher.errors import LauncherError

T = TypeVar("T")

#: How booleans are written: libvirt uses yes/no in some places, on/off in others, or an empty element.
YES_NO = ("yes", "no")
ON_OFF = ("on", "off")
FLAG = ("", "")

#: Prefixes that a path may use: our own part of <metadata>, and what libvirt passes on to QEMU unseen.
NAMESPACES = {"virtpod": "urn:virtpod:vmi:1", "qemu": "http://libvirt.org/schemas/domain/qemu/1.0"}
for _prefix, _uri in NAMESPACES.items():
    ET.register_namespace(_prefix, _uri)


class DomainXmlError(LauncherError):
    """The document is not what the schema classes expect."""


@record(frozen=True, slots=True)
class Place:
    """Where a field stands in its element."""

    parents: tuple[str, ...]
    leaf: str
    attribute: str
    words: tuple[str, str]


@record(frozen=True, slots=True)
class Slot:
    """A field with its place and its type, resolved once for each class."""

    name: str
    place: Place
    kind: type
    many: bool


def at(path: str, *, words: tuple[str, str] = YES_NO) -> Any:
    """A field that stands at `path`; absent (None, False for flags, an empty list) unless set."""
    steps = _steps(path)
    attribute = steps.pop()[1:] if steps[-1].startswith("@") else ""
    leaf = steps.pop() if steps else ""
    metadata = {"place": Place(tuple(steps), leaf, attribute, words)}
    return field(default=None, metadata=metadata)


def many(path: str) -> Any:
    """A list of elements at `path`."""
    steps = _steps(path)
    return field(default_factory=list, metadata={"place": Place(tuple(steps[:-1]), steps[-1], "", YES_NO)})


def flag(path: str) -> Any:
    """An element without content whose presence means yes."""
    steps = _steps(path)
    return field(default=False, metadata={"place": Place(tuple(steps[:-1]), steps[-1], "", FLAG)})


def _steps(path: str) -> list[str]:
    return [_tag(step) for step in path.split("/")]


def _tag(step: str) -> str:
    prefix, _, name = step.partition(":")
    return f"{{{NAMESPACES[prefix]}}}{name}" if name else step


_slots: dict[type, tuple[Slot, ...]] = {}


def slots_of(cls: type) -> tuple[Slot, ...]:
    """The fields of a class, resolved at its first use."""
    if cls not in _slots:
        _slots[cls] = _resolve(cls)
    return _slots[cls]


def _resolve(cls: type) -> tuple[Slot, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(_slot(f, hints[f.name]) for f in dataclasses.fields(cls) if "place" in f.metadata)


def _slot(declared: dataclasses.Field[Any], hint: Any) -> Slot:
    origin = typing.get_origin(hint)
    if origin is list:
        return Slot(declared.name, declared.metadata["place"], typing.get_args(hint)[0], True)
    if origin in (types.UnionType, typing.Union):
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return Slot(declared.name, declared.metadata["place"], hint, False)


def to_element(obj: Any, tag: str) -> ET.Element:
    element = ET.Element(tag)
    for slot in slots_of(type(obj)):
        value = getattr(obj, slot.name)
        if value is None or (value is False and slot.place.words is FLAG):
            continue
        _put(element, slot, value)
    return element


def _put(element: ET.Element, slot: Slot, value: Any) -> None:
    place = slot.place
    if slot.many and not value:
        return
    for step in place.parents:
        element = _child(element, step)
    if slot.many:
        for item in value:
            _append(element, place.leaf, item)
    elif place.attribute:
        (_child(element, place.leaf) if place.leaf else element).set(place.attribute, _text(value, place.words))
    elif dataclasses.is_dataclass(value):
        _append(element, place.leaf, value)
    else:
        target = _child(element, place.leaf) if place.leaf else element
        if place.words is not FLAG:
            target.text = _text(value, place.words)


def _append(element: ET.Element, tag: str, item: Any) -> None:
    if dataclasses.is_dataclass(item):
        element.append(to_element(item, tag))
    else:
        ET.SubElement(element, tag).text = _text(item, YES_NO)


def _child(element: ET.Element, tag: str) -> ET.Element:
    found = element.find(tag)
    return ET.SubElement(element, tag) if found is None else found


def _text(value: Any, words: tuple[str, str]) -> str:
    if isinstance(value, bool):
        return words[0] if value else words[1]
    return str(value)


def from_element(element: ET.Element, cls: type[T]) -> T:
    """What the document does not have keeps the default of its field."""
    found = ((slot.name, _get(element, slot)) for slot in slots_of(cls))
    return cls(**{name: value for name, value in found if value is not None})


def _get(element: ET.Element, slot: Slot) -> Any:
    place = slot.place
    parent: ET.Element | None = element
    for step in place.parents:
        parent = parent.find(step) if parent is not None else None
    if slot.many:
        found = parent.findall(place.leaf) if parent is not None else []
        return [_item(child, slot.kind) for child in found]
    if parent is not None and place.leaf:
        parent = parent.find(place.leaf)
    return _value(parent, slot)


def _value(node: ET.Element | None, slot: Slot) -> Any:
    place = slot.place
    if place.words is FLAG:
        return node is not None
    if node is None:
        return None
    if place.attribute:
        return _read(node.get(place.attribute), slot)
    return from_element(node, slot.kind) if dataclasses.is_dataclass(slot.kind) else _read(node.text or "", slot)


def _item(node: ET.Element, kind: type) -> Any:
    return from_element(node, kind) if dataclasses.is_dataclass(kind) else kind(node.text or "")


def _read(text: str | None, slot: Slot) -> Any:
    if text is None:
        return None
    if slot.kind is bool:
        if text not in slot.place.words:
            raise DomainXmlError(
                f"{slot.name}: {text!r} is neither {slot.place.words[0]!r} nor {slot.place.words[1]!r}"
            )
        return text == slot.place.words[0]
    try:
        return slot.kind(text)
    except ValueError as error:
        raise DomainXmlError(f"{slot.name}: {text!r} is not of type {slot.kind.__name__}") from error
