"""Dataclasses that cost next to nothing to declare.

`dataclass` writes the source of each class's methods and compiles it: 0.4 ms a class, which a virt-launcher, with its
hundred classes, would pay once for each VM. `record` keeps the fields (so that `fields`, `replace` and `asdict` work)
and gives all classes the same few methods, which read them. Making an instance takes some microseconds more: it is for
values of which there are hundreds, not millions. To a type checker it is `dataclass` itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool = False, slots: bool = False, kw_only: bool = False) -> Callable[[type], type]:
        """As `dataclass`, with these of its options."""

        def declare(cls: type) -> type:
            for name, method in (_FROZEN if frozen else _OPEN).items():
                if name not in cls.__dict__ or cls.__dict__[name] is None:
                    setattr(cls, name, method)
            # Or it makes one up, from a signature that it has to work out.
            cls.__doc__ = cls.__doc__ or cls.__name__
            return dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)

        return declare


__all__ = ["record"]

_fields: dict[type, tuple[Field[Any], ...]] = {}


def _of(cls: type) -> tuple[Field[Any], ...]:
    found = _fields.get(cls)
    if found is None:
        found = _fields[cls] = dataclasses.fields(cls)
    return found


def _init(self: Any, *values: object, **named: object) -> None:
    cls = type(self)
    fields = _of(cls)
    if values:
        _name_them(cls, [field.name for field in fields if not field.kw_only], values, named)
    missing = []
    for field in fields:
        if field.name in named:
            value = named.pop(field.name)
        elif field.default is not MISSING:
            value = field.default
        elif field.default_factory is not MISSING:
            value = field.default_factory()
        else:
            missing.append(field.name)
            continue
        object.__setattr__(self, field.name, value)
    if missing:
        raise TypeError(f"{cls.__name__} is missing {', '.join(missing)}")
    if named:
        raise TypeError(f"{cls.__name__} has no {', '.join(named)}")


def _name_them(cls: type, names: list[str], values: tuple[object, ...], named: dict[str, object]) -> None:
    if len(values) > len(names):
        raise TypeError(f"{cls.__name__} takes {len(names)} values without a name, not {len(values)}")
    for name, value in zip(names, values, strict=False):
        if name in named:
            raise TypeError(f"{cls.__name__} was given {name} twice")
        named[name] = value


def _values(self: Any) -> tuple[object, ...]:
    return tuple([getattr(self, field.name) for field in _of(type(self))])


def _repr(self: Any) -> str:
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in _of(type(self)))
    return f"{type(self).__qualname__}({shown})"


def _equal(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse_to_set(self: Any, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"{name} of {type(self).__name__} cannot be changed")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"{name} of {type(self).__name__} cannot be changed")


def _restore(self: Any, values: tuple[object, ...]) -> None:
    """For copies of what cannot be changed."""
    for field, value in zip(_of(type(self)), values, strict=True):
        object.__setattr__(self, field.name, value)


_OPEN: dict[str, Any] = {"__init__": _init, "__repr__": _repr, "__eq__": _equal, "__hash__": None}
_FROZEN: dict[str, Any] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _equal,
    "__hash__": _hash,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _values,
    "__setstate__": _restore,
}
