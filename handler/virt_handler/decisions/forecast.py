"""What a move of a machine would take, before it begins. Pure: figures in, a forecast out.

Memory is sent in rounds: each round sends what the guest has written during the one before. While the guest writes more
slowly than the way can carry, each round is shorter, and the move ends when the rest fits into the pause that the guest
may have. Else it would never end by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from virt_core.apis.moveview import CONVERGES, UNKNOWN, WILL_NOT, WITH_HELP

_MIB = 1 << 20
_GB = 1_000_000_000
#: QEMU's own, where nothing else is configured.
DEFAULT_DOWNTIME_S = 0.3
#: What the switch itself takes beside the rest of the memory, about.
_SWITCH_S = 0.05
#: A guest that writes nearly as fast as the way carries needs so many rounds that anything on the way spoils it.
_SAFE = 0.9
_MAX_ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    memory: int
    #: Disks that are copied along.
    disks: int = 0
    #: Bytes a second that the guest changes.
    dirty: int
    #: Bytes a second that the way carries; 0: nobody knows.
    speed: int = 0
    #: It is the limit of the configuration.
    configured: bool = False
    max_downtime_s: float = 0.0
    #: How long guests stood still that left this node before; 0: nobody knows.
    usual_downtime_s: float = 0.0
    auto_converge: bool = False
    post_copy: bool = False
    disruption: bool = False
    #: Seconds a GB; 0: the move is never given up.
    timeout_per_gb: int = 0


@dataclass(frozen=True, slots=True)
class Forecast:
    verdict: str
    message: str
    #: 0: not known.
    seconds: float = 0.0
    downtime_s: float = 0.0


def foresee(case: Case) -> Forecast:
    if not case.speed:
        return _unknown(case)
    allowed = case.max_downtime_s or DEFAULT_DOWNTIME_S
    if case.memory <= case.speed * allowed:
        return _good(case, (case.memory + case.disks) / case.speed, case.memory / case.speed)
    if case.dirty < case.speed * _SAFE:
        sent, rest = _rounds(case, case.speed * allowed)
        return _good(case, (sent + rest + case.disks) / case.speed, rest / case.speed)
    return _helped(case) or _hopeless(case)


def _rounds(case: Case, enough: float) -> tuple[float, float]:
    """What is sent while the guest runs, and what is left for the pause."""
    ratio, sent, rest = case.dirty / case.speed, 0.0, float(case.memory)
    for _ in range(_MAX_ROUNDS):
        if rest <= enough:
            break
        sent, rest = sent + rest, rest * ratio
    return sent, rest


def _good(case: Case, seconds: float, downtime_s: float) -> Forecast:
    downtime_s = max(downtime_s + _SWITCH_S, case.usual_downtime_s)
    text = (
        f"{_what(case)} at {_speed(case)}: about {_time(seconds)}, with the guest standing still for {_ms(downtime_s)}"
    )
    return Forecast(CONVERGES, text, seconds, downtime_s)


def _helped(case: Case) -> Forecast | None:
    """It would not end by itself, and something may be done about that."""
    limit_s = float(case.timeout_per_gb * max(-(-(case.memory + case.disks) // _GB), 1))
    whole_s = (case.memory + case.disks) / case.speed
    opening = f"{_race(case)}, so it does not end by itself"
    if case.auto_converge:
        return Forecast(WITH_HELP, f"{opening}; the guest is slowed down until it does (auto-converge)")
    if not case.disruption or not limit_s:
        return None
    late = f"after {_time(limit_s)}"
    if case.post_copy:
        text = f"{opening}; {late} the guest goes on at the other node and fetches the rest of its memory (post-copy)"
        return Forecast(WITH_HELP, text, limit_s + whole_s, _SWITCH_S)
    pause_s = case.memory / case.speed + _SWITCH_S
    text = f"{opening}; {late} the guest is paused for {_time(pause_s)}, until its memory is there"
    return Forecast(WITH_HELP, text, limit_s + pause_s, pause_s)


def _hopeless(case: Case) -> Forecast:
    text = (
        f"will not converge: {_mib(case.dirty)} MiB/s are written, {_mib(case.speed)} MiB/s can be moved"
        f"{' (bandwidthPerMigration)' if case.configured else ''}; allow post-copy, auto-converge or a pause"
    )
    return Forecast(WILL_NOT, text)


def _unknown(case: Case) -> Forecast:
    text = (
        f"{_what(case)}, and {_mib(case.dirty)} MiB/s are written; how fast this node can send is not known "
        "until a machine has left it, or bandwidthPerMigration says it"
    )
    return Forecast(UNKNOWN, text)


def _race(case: Case) -> str:
    return f"{_mib(case.dirty)} MiB/s are written and {_mib(case.speed)} MiB/s can be moved"


def _what(case: Case) -> str:
    disks = f" and {_mib(case.disks)} MiB of disks" if case.disks else ""
    return f"{_mib(case.memory)} MiB of memory{disks} would be moved"


def _speed(case: Case) -> str:
    whence = "the configured limit" if case.configured else "as former moves from this node came to"
    return f"{_mib(case.speed)} MiB/s ({whence})"


def _mib(count: int) -> str:
    return f"{count / _MIB:.0f}" if count >= 10 * _MIB else f"{count / _MIB:.1f}"


def _time(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else _time(seconds)
