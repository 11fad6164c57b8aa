"""What a dry run found out, in words. Pure."""

from __future__ import annotations

from virt_core.apis.moveview import UNKNOWN, MoveForecast
from virt_core.apis.quantity import readable as size


def forecast_lines(found: MoveForecast) -> list[str]:
    """What a dry run found out, one fact a line."""
    lines = [f"forecast: {found.message}"] if found.message else []
    if not found.memory_bytes:
        return lines
    lines.append(f"  to move:   {size(found.memory_bytes)} of memory{_disks(found)}")
    lines.append(f"  written:   {size(found.dirty_bytes_per_second)}/s by the guest")
    if found.bandwidth_bytes_per_second:
        whence = "bandwidthPerMigration" if found.bandwidth_configured else "measured in former moves"
        lines.append(f"  speed:     {size(found.bandwidth_bytes_per_second)}/s ({whence})")
    if found.verdict != UNKNOWN and found.expected_seconds:
        downtime = f", guest stands still for {found.expected_downtime_milliseconds} ms"
        lines.append(f"  expected:  {found.expected_seconds:.1f} s{downtime}")
    return lines


def _disks(found: MoveForecast) -> str:
    return f", {size(found.disk_bytes)} of disks in the Pod" if found.disk_bytes else ""
