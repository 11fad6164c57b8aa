"""Makes up inputs and runs them: the same ones each time, or new ones from a seed that is printed."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.target import Run, Target
from hypothesis import HealthCheck, Phase, given, seed, settings

_CALM = settings(
    deadline=None,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def drive(target: Target, run: Run, examples: int, number: int | None = None) -> bytes | None:
    """Runs so many inputs, the smallest failing one is raised again. `number` is the seed; None: always the same."""
    last: list[bytes] = [b""]

    def once(data: bytes) -> None:
        last[0] = data
        run(data)

    body: Callable[[], None] = given(target.inputs)(once)
    if number is not None:
        body = seed(number)(body)
    phases = (Phase.generate, Phase.shrink)
    body = settings(_CALM, max_examples=examples, derandomize=number is None, phases=phases)(body)
    try:
        body()
    except Exception as error:
        raise Broken(target.name, last[0]) from error
    return None


def samples(target: Target, count: int, number: int) -> list[bytes]:
    """Inputs alone."""
    found: list[bytes] = []

    def keep(data: bytes) -> None:
        found.append(data)

    body = given(target.inputs)(keep)
    settings(_CALM, max_examples=count, phases=(Phase.generate,))(seed(number)(body))()
    return found


class Broken(Exception):
    """An input broke its target."""

    def __init__(self, target: str, data: bytes) -> None:
        super().__init__(f"{target}: {len(data)} bytes: {data[:1000]!r}")
        self.target, self.data = target, data
