"""The program's two ends: standard input and standard output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from virt_netsetup import main


def call(request: bytes) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "virt_netsetup.main"], input=request, capture_output=True, timeout=60, check=False
    )
    assert done.stderr == b""
    return done.returncode, json.loads(done.stdout)


def test_nonsense_is_answered_with_the_field() -> None:
    code, report = call(b'{"vmiUid": 7}')
    assert code == 1
    assert report["error"] == {"step": "plan", "message": "Expected `str`, got `int` - at `$.vmiUid`", "critical": True}


def test_missing_namespace_is_an_error_for_setup_and_none_for_teardown(tmp_path: Path) -> None:
    plan = {"vmiUid": "x", "stateDir": str(tmp_path), "netnsPath": str(tmp_path / "none")}
    code, report = call(json.dumps(plan).encode())
    assert code == 1
    assert report["error"]["step"] == "netns"  # type: ignore[index]
    code, report = call(json.dumps({**plan, "action": "teardown"}).encode())
    assert (code, report) == (0, {})


def test_heavy_libraries_stay_out() -> None:
    """Each fork copies what is loaded; of pyroute2, which brings asyncio, the parts that we use are enough."""
    forbidden = [
        "pyroute2.ndb",
        "pyroute2.conntrack",
        "pyroute2.ethtool",
        "grpc",
        "structlog",
        "urllib3",
        "virt_protos",
    ]
    code = f"import sys, virt_netsetup.main; print([name for name in {forbidden} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_who_wants_the_whole_library_still_gets_it() -> None:
    code = "import virt_netsetup.kernel as k, pyroute2; print(pyroute2.IPRoute is k.IPRoute, pyroute2.NDB.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "True NDB"


def test_words_that_it_does_not_know() -> None:
    for words in (["serve", "1", "2"], ["wire"]):
        done = subprocess.run(
            [sys.executable, "-m", "virt_netsetup.main", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, "usage: virt-netsetup < plan.json > report.json")


def test_failures_become_answers() -> None:
    report = main.answer(b"{}")
    assert report.error is not None
    assert report.error.critical
