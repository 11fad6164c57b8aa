#!/usr/bin/env python3
"""Writes what follows from the table of supported features: docs/supported.md and the paths that virt-launcher refuses.

virt-launcher gets a list of its own, because every import is paid once for each VM and it needs a tenth of the table.
`--check` only compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from virt_core.apis.support.cluster import LIVE_MIGRATION
from virt_core.apis.support.feature import GATED, Feature
from virt_core.apis.support.table import TODAY, Support

ROOT = Path(__file__).resolve().parent.parent
DOCS, LAUNCHER = "docs/supported.md", "launcher/virt_launcher/convert/not_built.py"

HEAD = """# What is supported

Made by `make generate` from the table in `core/virt_core/apis/support`, which also decides what virt-api accepts:
what is not built is refused at the door in one sentence that names the field, and nothing is stored. "Not yet" waits
for somebody, or for hardware to try it on; "never" is a decision, and the note says what there is instead. A feature
gate that stands for something that is not built is off, whatever the KubeVirt object says. Fields are below the spec of
a VirtualMachineInstance, or of a template of one; those with `VM` before them below the spec of a VirtualMachine.
"""
CODE_HEAD = '''"""What a manifest may ask for and virt-launcher cannot make. Made by `make generate`; do not edit."""

from __future__ import annotations

#: path below the spec, what is said of it
NOT_BUILT: tuple[tuple[str, str], ...] = (
'''


def render(support: Support = TODAY) -> dict[str, str]:
    """Path below the repository → text."""
    return {DOCS: document(support), LAUNCHER: launcher_list(support)}


def document(support: Support) -> str:
    areas = list(dict.fromkeys(feature.area for feature in support.features))
    parts = [HEAD, *(_section(area, [f for f in support.features if f.area == area]) for area in areas)]
    return "\n".join(parts)


def _section(area: str, features: list[Feature]) -> str:
    head = ["| feature | state | fields, kinds, calls | gates | note |", "|---|---|---|---|---|"]
    return "\n".join([f"## {area[0].upper()}{area[1:]}", "", *head, *map(_line, features), ""])


def _line(feature: Feature) -> str:
    state = f"gated by {' '.join(feature.gates)}" if feature.state == GATED else feature.state
    vm = [f"VM {path}" for path in feature.vm_fields]
    places = [*feature.fields, *vm, *feature.annotations, *feature.kinds, *feature.subresources]
    shown = ", ".join(f"`{place}`" for place in places).replace("|", r"\|")
    what = feature.what[0].upper() + feature.what[1:]
    gates = "" if feature.state == GATED else ", ".join(feature.gates)
    return f"| {what} | {state} | {shown} | {gates} | {feature.note} |"


def chart_section(support: Support) -> str:
    """For the chart's README: what its users must do without, and who may move machines once that is possible."""
    lines = [
        "[docs/supported.md](../../docs/supported.md) has each feature with its state, fields and kinds. Not built"
    ]
    lines += ["and refused, or left to a restart, when it is asked for:", ""]
    for area in dict.fromkeys(feature.area for feature in support.missing):
        asked = [f.what for f in support.missing if f.area == area and _can_be_asked_for(f)]
        lines += [f"- {area}: {'; '.join(asked)}"] if asked else []
    if support.is_built(LIVE_MIGRATION):
        lines += ["", "To move machines between nodes, bind `kubevirt.io:migrate`."]
    return "\n".join([*lines, ""])


def _can_be_asked_for(feature: Feature) -> bool:
    """By a manifest, a call, or a change of what runs; not by a feature gate alone."""
    places = feature.fields + feature.vm_fields + feature.annotations + feature.kinds + feature.subresources
    return bool(places) or feature.area == "hot-plug"


def launcher_list(support: Support) -> str:
    rows = [(path, f.refusal) for f in support.missing if f.in_launcher for path in f.fields]
    lines = [f"    (\n        {_quoted(path)},\n        {_quoted(text)},\n    ),\n" for path, text in rows]
    return CODE_HEAD + "".join(lines) + ")\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def main() -> int:
    stale = [name for name, text in render().items() if not _is(ROOT / name, text)]
    if "--check" in sys.argv[1:]:
        print("\n".join(stale))
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(render()[name], encoding="utf-8")
    return 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
