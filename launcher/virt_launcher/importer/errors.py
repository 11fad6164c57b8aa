"""How an import goes wrong: for good, or only this time."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from virt_core.apis import importplan


class Refused(Exception):
    """Another attempt would end the same way. `reason` is one of `importplan.FINAL`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Trouble(Exception):
    """It may go better the next time."""


class SourceChanged(Exception):
    """The source is another one than that of which we have the beginning."""


@contextmanager
def clear_space_errors(what: str) -> Iterator[None]:
    """A full disk, by name."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused(importplan.NO_SPACE, f"there is no space left in {what}") from error
        if error.errno == errno.EFBIG:
            raise Refused(importplan.NO_SPACE, f"{what} cannot hold a file of that size") from error
        raise
