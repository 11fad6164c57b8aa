"""Helm, as the tests call it: the one on the PATH or the one that hack/kubectl fetches."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "virtpod"
RELEASE = NAMESPACE = "virtpod"


class HelmError(AssertionError):
    """Helm refused; the text is what it said."""


@functools.cache
def helm_path() -> str:
    found = subprocess.run(
        [ROOT / "hack" / "kubectl", "helm"], capture_output=True, text=True, timeout=300, check=False
    )
    if found.returncode != 0:
        raise HelmError(f"no helm here, and none could be fetched: {found.stderr.strip()[-500:]}")
    return found.stdout.strip()


def helm(*args: str, values: str = "", env: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> str:
    """What Helm prints. `values` is YAML, given as a file. Raises HelmError with its words."""
    command = [helm_path(), *args, *(("--values", "-") if values else ())]
    done = subprocess.run(
        command, input=values or None, capture_output=True, text=True, timeout=timeout_s, check=False, env=env
    )
    if done.returncode != 0:
        raise HelmError(f"helm {' '.join(args)}: {done.stderr.strip()}\n{done.stdout[-4000:]}")
    return done.stdout


def template(values: str = "", *args: str, namespace: str = NAMESPACE) -> str:
    return helm("template", RELEASE, str(CHART), "--namespace", namespace, *args, values=values)


def objects(text: str) -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, Loader=loader) if document]
