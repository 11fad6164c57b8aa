"""Reviews run on a few threads, so that a slow one keeps nobody else waiting: not the event loop, and not for ever.

Threads and not processes: an object is bounded before any rule sees it (`bounds`), so a review is a matter of
milliseconds, and the interpreter takes turns between threads every five. A process for each would cost tens of MiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from virt_api.admission import deadline

#: Below the time that the API server gives a webhook (10 s), so that the user reads our sentence and not its own.
REVIEW_S = 8.0
_THINKING = 2
_ASKING = 8
#: Reviews that may wait for a thread. The API server itself has at most a few hundred requests under way.
_QUEUE = 256


class Busy(Exception):
    """No thread, or no more time."""


class Workers:
    def __init__(self, queue: int = _QUEUE, within_s: float = REVIEW_S) -> None:
        self._thinking = ThreadPoolExecutor(_THINKING, "rules")
        self._asking = ThreadPoolExecutor(_ASKING, "rules-asking")
        self._queue, self._within_s, self._under_way = queue, within_s, 0

    async def run(self, call: Callable[[], bytes], *, asks: bool) -> bytes:
        """`asks`: waits for the API server, so it must not hold up those that only think. Raises Busy."""
        if self._under_way >= self._queue:
            raise Busy(f"virt-api has {self._queue} reviews under way; try again")
        self._under_way += 1
        loop, pool = asyncio.get_running_loop(), self._asking if asks else self._thinking
        work = loop.run_in_executor(pool, deadline.limited, call, self._within_s)
        try:
            return await asyncio.wait_for(work, self._within_s)
        except TimeoutError as error:
            raise Busy(f"the review was not done within {self._within_s:.0f} s; try again") from error
        finally:
            self._under_way -= 1

    def close(self) -> None:
        for pool in (self._thinking, self._asking):
            pool.shutdown(wait=False, cancel_futures=True)
