"""The program itself: starts by command line, stays small, stops on a signal, and says what is missing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from framework.certs import CertAuthority
from framework.waiting import eventually
from functional.api.rig import Rig

from virt_core.apis import names

MEMORY_LIMIT_KIB = 80 << 10


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "virt_api.main", *args]


def flags(rig: Rig, kubeconfig: Path) -> list[str]:
    own = CertAuthority().issue("virt-api", names.TLS_NAME_API).write(rig.directory / "own")
    return [
        "--kubeconfig", str(kubeconfig), "--serving-tls-dir", str(rig.directory / "serving"), "--tls-dir", str(own),
        "--automation-listen", "127.0.0.1:0", "--requestheader-client-ca", str(rig.directory / "proxy-ca.crt"),
    ]  # fmt: skip


def kubeconfig(directory: Path) -> Path:
    path = directory / "kubeconfig.json"
    path.write_text(
        '{"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"u","user":{"token":"t"}}],'
        '"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}'
    )
    return path


def test_it_serves_stays_small_and_stops(rig: Rig) -> None:
    log = rig.directory / "virt-api.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command("--listen", "127.0.0.1:0", *flags(rig, kubeconfig(rig.directory))), stderr=output, stdout=output
        )
    try:
        port = eventually(lambda: re.search(r'"port":(\d+)', log.read_text()), within_s=20).group(1)
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz", context=rig.tls(), timeout=10) as response:
            assert response.status == 200
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        pss = int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE).group(1))  # type: ignore[union-attr]
        assert pss < MEMORY_LIMIT_KIB
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(5)


def test_a_taken_port_is_one_sentence(rig: Rig) -> None:
    args = command("--listen", f"127.0.0.1:{rig.port}", *flags(rig, kubeconfig(rig.directory)))
    done = subprocess.run(args, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"Error: cannot listen on 127.0.0.1:{rig.port}: Address already in use"]


def test_a_taken_automation_port_is_one_sentence(rig: Rig) -> None:
    taken = f"127.0.0.1:{rig.port}"
    args = command("--listen", "127.0.0.1:0", *flags(rig, kubeconfig(rig.directory)), "--automation-listen", taken)
    done = subprocess.run(args, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"Error: cannot listen on {taken}: Address already in use"]
