"""What the calls take: the options of each verb."""

from __future__ import annotations

import re
from typing import Any

from virt_api.problems import Problem
from virt_core.apis.base import Int64, Struct
from virt_core.apis.vm import HotplugVolumeSource

_DURATION = re.compile(r"(?:\d+(?:\.\d*)?(?:ns|us|µs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)")
_MAX_TEXT = 64
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class Options(Struct):
    """Of all verbs that have none of their own."""

    dry_run: list[str] = []


class StartOptions(Struct):
    paused: bool = False
    #: Ours: boot afresh, though there is a saved state.
    discard_state: bool = False
    dry_run: list[str] = []


class StopOptions(Struct):
    grace_period: Int64 | None = None
    dry_run: list[str] = []


class RestartOptions(Struct):
    grace_period_seconds: Int64 | None = None
    dry_run: list[str] = []


class AddVolume(Struct):
    """AddVolumeOptions, before it is known to be whole. The disk takes its name from the volume."""

    name: str = ""
    disk: dict[str, Any] | None = None
    volume_source: HotplugVolumeSource | None = None
    dry_run: list[str] = []


class MemoryDump(Struct):
    """VirtualMachineMemoryDumpRequest, of which people give the claim."""

    claim_name: str = ""


class Hibernate(Struct):
    """The claim that takes the state; none: one is made."""

    claim_name: str = ""
    dry_run: list[str] = []


class RemoveVolume(Struct):
    name: str = ""
    dry_run: list[str] = []


class FreezeTimeout(Struct):
    unfreeze_timeout: str | None = None


class EvacuateCancelOptions(Struct):
    evacuation_node_name: str = ""
    dry_run: list[str] = []


class MigrateOptions(Struct):
    added_node_selector: dict[str, str] = {}
    dry_run: list[str] = []


class SEVSessionOptions(Struct):
    session: str = ""
    dh_cert: str = ""


class SEVSecretOptions(Struct):
    header: str = ""
    secret: str = ""


class ClusterProfilerRequest(Struct):
    """Which components' profiles, and how many at once."""

    label_selector: str = ""
    page_size: Int64 = 10


def seconds(text: str) -> float:
    """A Go duration such as `5m0s`. Raises Problem 400."""
    if len(text) > _MAX_TEXT or not _DURATION.fullmatch(text):
        raise Problem(400, f"{text[:_MAX_TEXT]!r} is not a duration such as 5m or 90s")
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))
