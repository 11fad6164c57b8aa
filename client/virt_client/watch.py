"""The changes of machines, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from virt_client.errors import error_of
from virt_client.types import Change, change_of


class Watch:
    """Iterate over it; leave the `with` block, or `close` from any thread, to end it."""

    def __init__(self, open_call: Callable[[], Any]) -> None:
        self._call = open_call()
        self._closed = False

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._call.cancel()

    def __iter__(self) -> Iterator[Change]:
        try:
            for event in self._call:
                yield change_of(event)
        except grpc.RpcError as error:
            if not self._closed:
                raise error_of(error) from error
