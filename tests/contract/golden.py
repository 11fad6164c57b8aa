"""The recorded transcripts of the real kube-apiserver, one file for each subject, and how two transcripts differ."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parent.parent / "golden" / "contract"

Transcripts = dict[str, list[dict[str, Any]]]


def load(directory: Path = DIRECTORY) -> Transcripts:
    """All recorded transcripts by case."""
    found: Transcripts = {}
    for path in sorted(directory.glob("*.json")):
        for name, transcript in json.loads(path.read_text()).items():
            found[f"{path.stem}/{name}"] = transcript
    return found


def save(transcripts: Transcripts, directory: Path = DIRECTORY) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    by_subject: dict[str, Transcripts] = {}
    for case, transcript in transcripts.items():
        subject, _, name = case.partition("/")
        by_subject.setdefault(subject, {})[name] = transcript
    for subject, cases in by_subject.items():
        (directory / f"{subject}.json").write_text(text(cases) + "\n")


def text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)


def difference(real: Any, ours: Any) -> str:
    """What a person needs to see: the lines that differ, with some around them. Empty when nothing does."""
    if real == ours:
        return ""
    lines = difflib.unified_diff(text(real).splitlines(), text(ours).splitlines(), "kube-apiserver", "ours", "", "", 2)
    return "\n".join(line.rstrip() for line in lines)
