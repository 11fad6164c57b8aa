"""The explanation as text for people, or as JSON or YAML for programs."""

from __future__ import annotations

from typing import Any

import msgspec

from virtctl.explain.evidence import evidence
from virtctl.explain.facts import Facts
from virtctl.explain.moves import standing_of, steps_of
from virtctl.explain.standing import standing
from virtctl.explain.timeline import State, Step, timeline
from virtctl.explain.words import Standing

_HEADINGS = ("STEP", "OWNER", "TIME (UTC)", "TOOK", "AT", "WHAT")


class Explanation(msgspec.Struct, kw_only=True, rename="camel"):
    kind: str
    namespace: str
    name: str
    phase: str
    node: str
    standing: Standing
    steps: list[Step]
    evidence: list[str]


def explanation(facts: Facts) -> Explanation:
    stands = standing(facts)
    settled = facts.phase == "Running" and stands.final and not stands.failed
    return Explanation(
        kind="VirtualMachine" if facts.vm is not None else "VirtualMachineInstance",
        namespace=facts.namespace,
        name=facts.name,
        phase=facts.phase,
        node=facts.vmi.status.node_name if facts.vmi else "",
        standing=stands,
        steps=timeline(facts.vmi, facts.now) if facts.vmi else [],
        evidence=[] if settled else evidence(facts, stands.sentence),
    )


def move_explanation(facts: Facts) -> Explanation:
    """Of a migration."""
    stands, job = standing_of(facts), facts.job
    return Explanation(
        kind="VirtualMachineInstanceMigration",
        namespace=facts.namespace,
        name=facts.name,
        phase=(job.status.phase if job is not None else "") or "New",
        node="",
        standing=stands,
        steps=steps_of(job, facts.now) if job is not None else [],
        evidence=[] if stands.final and not stands.failed else evidence(facts, stands.sentence),
    )


def as_text(found: Explanation) -> str:
    head = f"{found.kind} {found.namespace}/{found.name}: {found.phase or 'no instance'}"
    parts = [head + (f" on {found.node}" if found.node else "")]
    if found.steps:
        parts.append("\n".join(_table([_HEADINGS, *map(_row, found.steps)])))
    if found.evidence:
        parts.append("\n".join(found.evidence))
    parts.append(f"{found.standing.sentence}\nNext: {found.standing.next}")
    return "\n\n".join(parts) + "\n"


def as_document(found: msgspec.Struct, form: str) -> str:
    """json or yaml."""
    plain: Any = msgspec.to_builtins(found)
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
    import yaml

    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def _row(step: Step) -> tuple[str, ...]:
    time = step.time.strftime("%H:%M:%S.%f")[:-3] if step.time else _MARKS[step.state]
    what = f"{step.title}: {step.message}" if step.message and step.title else step.title or step.message
    return (step.name, step.owner, time, _seconds(step.took_s), _seconds(step.at_s), what)


_MARKS = {
    State.DONE: "",
    State.WAITING: "waiting",
    State.OVERDUE: "overdue",
    State.LATER: "-",
    State.SKIPPED: "not needed",
    State.NEVER: "did not happen",
}


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f} s"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell; numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in (3, 4) else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
