"""The checksum that a manifest promises, and the bytes that came."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from virt_core.apis import importplan
from virt_launcher.importer.errors import Refused

if TYPE_CHECKING:
    from hashlib import _Hash

_LENGTHS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}


class Checksum:
    def __init__(self, text: str) -> None:
        """As `sha256:…`; empty: nothing was promised. Raises Refused."""
        self._kind, _, digest = text.partition(":")
        self._wanted = digest.lower()
        if text and not re.fullmatch(f"[0-9a-f]{{{_LENGTHS.get(self._kind, 0) or 1}}}", self._wanted):
            kinds = ", ".join(_LENGTHS)
            raise Refused(importplan.INVALID, f"the checksum {text!r} is none of {kinds} with its hexadecimal digits")
        if text and self._kind not in _LENGTHS:
            raise Refused(importplan.INVALID, f"there is no checksum of the kind {self._kind!r} here")
        self.wanted = bool(text)
        self.reset()

    def reset(self) -> None:
        self._hash: _Hash | None = None
        if self.wanted:
            import hashlib  # OpenSSL takes a while to come, and most images promise nothing.

            # Nobody relies on md5 here but those who publish nothing better.
            self._hash = hashlib.new(self._kind, usedforsecurity=False)

    def take(self, data: bytes) -> None:
        if self._hash is not None:
            self._hash.update(data)

    def watch(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.take(chunk)
            yield chunk

    def check(self) -> None:
        if self._hash is not None and self._hash.hexdigest() != self._wanted:
            raise Refused(
                importplan.CHECKSUM,
                f"the {self._kind} of what came is {self._hash.hexdigest()}, and the DataVolume says {self._wanted}",
            )
