"""Rules about spec.instancetype and spec.preference."""

from __future__ import annotations

from collections.abc import Iterator

from virt_api.admission.causes import Cause, invalid, not_found, not_supported, one_of
from virt_core.apis.vm import InstancetypeMatcher, PreferenceMatcher, VirtualMachineSpec

POLICIES = ("Reject", "Ignore")
Matcher = InstancetypeMatcher | PreferenceMatcher


def broken_matchers(new: VirtualMachineSpec, old: VirtualMachineSpec | None) -> Iterator[Cause]:
    for field, matcher, before in (
        ("spec.instancetype", new.instancetype, old.instancetype if old else None),
        ("spec.preference", new.preference, old.preference if old else None),
    ):
        if matcher is not None:
            yield from _matcher(field, matcher)
            if before is not None:
                yield from _revision(field, matcher, before)


def _matcher(field: str, matcher: Matcher) -> Iterator[Cause]:
    if not matcher.name and not matcher.infer_from_volume:
        yield not_found(field, "either name or inferFromVolume is needed")
    if matcher.infer_from_volume:
        if matcher.name:
            yield not_supported(f"{field}.name", "cannot be given together with inferFromVolume")
        if matcher.kind:
            yield not_supported(f"{field}.kind", "cannot be given together with inferFromVolume")
    policy = matcher.infer_from_volume_failure_policy
    if policy is not None and policy not in POLICIES:
        yield invalid(f"{field}.inferFromVolumeFailurePolicy", one_of(policy, POLICIES))


def _revision(field: str, matcher: Matcher, before: Matcher) -> Iterator[Cause]:
    """A captured revision belongs to one name: a new name needs a new revision, or none."""
    if matcher.name != before.name and matcher.revision_name and matcher.revision_name == before.revision_name:
        yield invalid(f"{field}.revisionName", "belongs to the old name; clear it to use the new one")
