"""What our programs show to a Prometheus."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .engine import Engine

_DEFAULT_PORTS = {"virt-handler": 8183, "virt-controller": 8182}


def of_handler(engine: Engine, node: str) -> str:
    return _page(engine.handler_pid(node), "virt-handler")


def of_controller(engine: Engine) -> str:
    """Of all copies: only the one that leads has anything to tell."""
    return "\n".join(_page(pid, "virt-controller") for pid in engine.component_pids("virt-controller"))


def _page(pid: int, component: str) -> str:
    listen = re.search(rb"--health-listen[=\0][^\0]*:(\d+)", Path(f"/proc/{pid}/cmdline").read_bytes())
    port = int(listen[1]) if listen else _DEFAULT_PORTS[component]
    fetch = f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:{port}/metrics').read().decode())"
    command = ["nsenter", "-t", str(pid), "-n", sys.executable, "-c", fetch]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def values(page: str, metric: str, /, **labels: str) -> list[float]:
    """Of every sample of that name that has these labels."""
    found = re.findall(rf"^{metric}(?:{{(.*)}})? (\S+)$", page, re.MULTILINE)
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return [float(number) for given, number in found if all(each in given for each in wanted)]
