"""What people and programs are told of a move: how it goes, and what it would take. Pure.

Not KubeVirt's: the answers of the VMI's subresource `migrationprogress` and of a dry run of the VM's `migrate`.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.migrationstate import MigrationConfiguration
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.travel import copied
from virt_core.apis.vmi import VirtualMachineInstance

CONVERGES, WITH_HELP, WILL_NOT, UNKNOWN = "Converges", "ConvergesWithHelp", "WillNotConverge", "Unknown"
#: The target is the first to say that it is over; for so long one waits for the last figures of the node that was left.
LAST_FIGURES_WITHIN_S = 5.0


class MoveProgress(Struct):
    """How a move goes, or went."""

    migration_uid: str = field(default="", name="migrationUID")  #: The job.
    mode: str = ""  #: PreCopy, PostCopy or Paused.
    total_bytes: int = 0  #: What there is to move.
    processed_bytes: int = 0  #: What was moved.
    remaining_bytes: int = 0  #: What is left; what the guest writes comes on top.
    bytes_per_second: int = 0  #: How fast it goes.
    dirty_bytes_per_second: int = 0  #: How fast the guest writes.
    iteration: int = 0  #: How often its memory was gone through.
    downtime_milliseconds: int = 0  #: How long the guest stood still; 0 until it is known.
    elapsed_seconds: float = 0.0  #: Since it began.
    ended: bool = False  #: Whether it is over.
    failed: bool = False  #: Whether it failed.
    held: bool = False  #: The guest stands still since nobody can say where it runs.
    reason: str = ""  #: Why it failed, or what it waits for.

    @property
    def percent(self) -> float | None:
        """Of what there was to move; None: it is not known yet."""
        if self.ended and not self.failed:
            return 100.0
        whole = self.processed_bytes + self.remaining_bytes
        return min(100.0 * self.processed_bytes / whole, 99.9) if self.total_bytes and whole else None

    @property
    def seconds_left(self) -> float | None:
        """None: it does not come nearer to its end, or nothing is known."""
        gained = self.bytes_per_second - self.dirty_bytes_per_second
        return self.remaining_bytes / gained if gained > 0 and self.total_bytes else None


class MoveForecast(Struct):
    """What a move would take."""

    verdict: str = UNKNOWN  #: Converges, ConvergesWithHelp, WillNotConverge or Unknown.
    message: str = ""  #: For people.
    memory_bytes: int = 0  #: Memory that would be moved.
    disk_bytes: int = 0  #: Disks that live in the Pod and would be copied.
    dirty_bytes_per_second: int = 0  #: How fast the guest writes.
    bandwidth_bytes_per_second: int = 0  #: How fast it could be moved; 0: not known.
    bandwidth_configured: bool = False  #: That is the configured limit.
    expected_seconds: float = 0.0  #: How long it would take; 0: not known.
    expected_downtime_milliseconds: int = 0  #: How long the guest would stand still; 0: not known.


def forecast_settings(settings: MigrationConfiguration, vmi: VirtualMachineInstance) -> dict[str, Any]:
    """What a forecast has to know of the settings that a move would run with, by the names of node/v1."""
    post_copy, disruption = bool(settings.allow_post_copy), settings.allow_workload_disruption
    return {
        "bandwidth_limit": parse_bytes(settings.bandwidth_per_migration or 0),
        "max_downtime_ms": max(settings.max_downtime_ms or 0, 0),
        "auto_converge": bool(settings.allow_auto_converge),
        "post_copy": post_copy,
        "workload_disruption": post_copy if disruption is None else disruption,
        "completion_timeout_per_gib": max(settings.completion_timeout_per_gi_b or 0, 0),
        "copied_volumes": [volume.name for volume in copied(vmi)],
    }
