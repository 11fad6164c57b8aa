"""What is imported by the launcher or its libraries, and not used at a start, is put off until somebody uses it.

grpc imports asyncio and its own variant for it, protobuf the implementation in Python that it has beside the one in C,
dataclasses what shows the signature of a function; some of our own modules need the others once in a while. A stand-in
takes their place; whoever asks it for something has the module imported. Each VM would pay for them.
"""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType

LATER = ("asyncio", "grpc.aio", "google.protobuf.internal.python_message", "inspect", "json", "hashlib", "shutil")


class Later(ModuleType):
    """A module that is imported when something of it is wanted."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__path__":
            # Asked by whoever lists modules; it is no use of them.
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def lighten() -> None:
    """Before the first import that is not of the standard library."""
    # What is imported is no garbage, and looking for some again and again takes a tenth of the time.
    gc.disable()
    for name in LATER:
        sys.modules.setdefault(name, Later(name))
    _msgspec_alone()


def settled() -> None:
    """What there is now stays, and need not be looked through any more."""
    gc.freeze()
    gc.enable()


def _msgspec_alone() -> None:
    """It takes typing_extensions where it finds it, for versions of Python that lack what we have."""
    name = "typing_extensions"
    if name in sys.modules or "msgspec" in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        importlib.import_module("msgspec")
    finally:
        del sys.modules[name]
