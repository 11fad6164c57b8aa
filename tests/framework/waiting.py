"""Waiting in tests: for a condition with a deadline, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], within_s: float = 30.0, every_s: float = 0.005) -> T:
    """Calls `check` until it returns something true, and returns that. An assertion in it counts as "not yet"."""
    deadline = time.monotonic() + within_s
    while True:
        failure: AssertionError | None = None
        try:
            outcome = check()
            if outcome:
                return outcome
        except AssertionError as error:
            failure = error
        if time.monotonic() >= deadline:
            raise failure or AssertionError(f"not within {within_s} s: the last answer was {outcome!r}")
        time.sleep(every_s)


@contextmanager
def running(*bodies: Callable[[threading.Event], object], within_s: float = 10.0) -> Iterator[threading.Event]:
    """Runs thread bodies for the time of a block, and fails the test when one of them does not stop or raised."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def guard(body: Callable[[threading.Event], object]) -> None:
        try:
            body(stop)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join(within_s)
    assert not any(thread.is_alive() for thread in threads), "a thread did not stop"
    if errors:
        raise errors[0]


@contextmanager
def no_leaked_threads(within_s: float = 20.0) -> Iterator[None]:
    """Fails when the block leaves threads behind."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: not _extra(before), within_s)


def _extra(before: set[threading.Thread]) -> list[str]:
    return [t.name for t in threading.enumerate() if t not in before]
