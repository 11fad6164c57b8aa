"""Logs, metrics, health, settings, clock and traces."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from framework.waiting import running

from virt_core.runtime import logs
from virt_core.runtime.clock import FakeClock, parse_rfc3339, rfc3339, rfc3339_micro
from virt_core.runtime.health import HealthServer, answer, split_address
from virt_core.runtime.metrics import Counter, Gauge, Histogram, Registry
from virt_core.runtime.settings import EnvParser, click_settings, env_name
from virt_core.runtime.trace import Trace


@pytest.fixture
def _logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logs._Settings.component, logs._Settings.threshold = "", logs.LEVELS["info"]
    logs._Settings.render = staticmethod(logs._render_json)


@pytest.mark.usefixtures("_logs")
def test_a_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("virt-test", json=True)
    log = logs.get_logger("m").bind(vmi="default/a")
    log.debug("hidden")
    log.info("started", pid=7, when=datetime(2026, 1, 1, tzinfo=UTC), odd=object)
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert list(event)[:4] == ["level", "timestamp", "component", "msg"]
    assert (event["level"], event["component"], event["msg"]) == ("info", "virt-test", "started")
    assert (event["vmi"], event["pid"], event["logger"]) == ("default/a", 7, "m")


@pytest.mark.usefixtures("_logs")
def test_exceptions_and_foreign_loggers_end_up_in_the_same_stream(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("virt-test", level="debug", json=True)
    try:
        raise ValueError("kaput")
    except ValueError:
        logs.get_logger().exception("oops")
    logging.getLogger("urllib3").warning("retry %d", 3)
    logging.getLogger("urllib3").info("chatter")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert "ValueError: kaput" in first["exception"]
    assert (second["level"], second["logger"], second["msg"]) == ("warning", "urllib3", "retry 3")


@pytest.mark.usefixtures("_logs")
def test_a_field_that_can_not_be_encoded_does_not_cost_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("virt-test", json=True)
    logs.get_logger().info("odd", value="\udcff")
    assert json.loads(capsys.readouterr().err)["msg"] == "'odd'"


@pytest.mark.usefixtures("_logs")
def test_pretty_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("virt-test", json=False)
    logs.get_logger().info("hello", who="you")
    line = capsys.readouterr().err
    assert "hello" in line
    assert not line.startswith("{")
    with pytest.raises(ValueError, match="loud"):
        logs.configure("virt-test", level="loud")


def test_json_logs_do_not_import_structlog_or_asyncio() -> None:
    """Each launcher would pay for it."""
    code = (
        "import sys; from virt_core.runtime import logs, supervisor, files, inotify, procs, settings, clock, trace;"
        "logs.configure('x', json=True); logs.get_logger().info('x');"
        "heavy = ('structlog', 'asyncio', 'click', 'urllib3', 'yaml', 'http.server', 'grpc');"
        "print([m for m in heavy if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert out.stdout.strip() == "[]"


def test_rpc_does_not_import_what_the_launcher_has_no_use_for() -> None:
    code = (
        "import sys; from virt_core.rpc import server, channel, status, handshake, tls, peer;"
        "print([m for m in ('structlog', 'click', 'urllib3', 'yaml', 'virt_core.kube') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert out.stdout.strip() == "[]"


def test_metrics_text() -> None:
    registry = Registry()
    counter = Counter("c_total", "Things.", ("kind",), registry)
    counter.inc("a")
    counter.inc("a", by=2)
    counter.inc('we"ird\n')
    gauge = Gauge("g", "Now.", registry=registry)
    gauge.set(2.5)
    tracked = Gauge("tracked", "Read when looked at.", registry=registry)
    tracked.track(lambda: 42)
    histogram = Histogram("h_seconds", "Time.", ("op",), (0.1, 1.0), registry)
    for value in (0.05, 0.1, 0.5, 3.0):
        histogram.observe(value, "x")
    lines = registry.render().splitlines()
    assert 'c_total{kind="a"} 3' in lines
    assert 'c_total{kind="we\\"ird\\n"} 1' in lines
    assert "g 2.5" in lines
    assert "tracked 42" in lines
    assert [line for line in lines if line.startswith("h_seconds")] == [
        'h_seconds_bucket{op="x",le="0.1"} 2',
        'h_seconds_bucket{op="x",le="1"} 3',
        'h_seconds_bucket{op="x",le="+Inf"} 4',
        'h_seconds_sum{op="x"} 3.65',
        'h_seconds_count{op="x"} 4',
    ]
    assert "# TYPE c_total counter" in lines


def test_metrics_refuse_mistakes() -> None:
    registry = Registry()
    counter = Counter("c_total", "Things.", ("kind",), registry)
    with pytest.raises(ValueError, match="takes the labels"):
        counter.inc()
    with pytest.raises(ValueError, match="declared twice"):
        Gauge("c_total", "Again.", registry=registry)


def test_large_counters_keep_their_digits() -> None:
    registry = Registry()
    counter = Counter("c_total", "Things.", registry=registry)
    counter.inc(by=123456789)
    assert "c_total 123456789" in registry.render().splitlines()


def test_readiness_names_what_fails() -> None:
    def broken() -> None:
        raise RuntimeError("no libvirt")

    checks = {
        "fine": lambda: None,
        "also": lambda: True,
        "sync": lambda: False,
        "word": lambda: "slow",
        "broken": broken,
    }
    status, text = answer("/readyz", checks)
    assert status == 503
    assert text.splitlines() == [
        "[+] fine",
        "[+] also",
        "[-] sync: not ready",
        "[-] word: slow",
        "[-] broken: no libvirt",
        "not ready",
    ]
    assert answer("/healthz?verbose", checks) == (200, "ok\n")
    assert answer("/secret", checks)[0] == 404


def test_health_server_over_http() -> None:
    server = HealthServer("127.0.0.1:0", {"ok": lambda: None})
    with running(server.run):
        for path in ("healthz", "readyz", "metrics"):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/{path}", timeout=5) as response:
                assert response.status == 200


def test_addresses() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    assert split_address(":80") == ("", 80)
    with pytest.raises(ValueError, match="host:port"):
        split_address("nonsense")


def test_settings_from_the_environment() -> None:
    assert env_name("virt-handler", "--node-name") == "VIRT_HANDLER_NODE_NAME"
    assert click_settings("virt-api")["auto_envvar_prefix"] == "VIRT_API"
    environ = {"VIRT_LAUNCHER_NAME": "a", "VIRT_LAUNCHER_QEMU_TIMEOUT": "7", "VIRT_LAUNCHER_ALLOW_EMULATION": "true"}
    parser = EnvParser("virt-launcher", environ)
    parser.add_argument("--name", required=True)
    parser.add_argument("--qemu-timeout", type=int, default=240)
    parser.add_argument("--allow-emulation", action="store_true")
    found = parser.parse_args([])
    assert (found.name, found.qemu_timeout, found.allow_emulation) == ("a", 7, True)
    assert parser.parse_args(["--name", "b"]).name == "b"


def test_a_bad_boolean_in_the_environment_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    parser = EnvParser("virt-launcher", {"VIRT_LAUNCHER_X": "maybe"})
    parser.add_argument("--x", action="store_true")
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "VIRT_LAUNCHER_X='maybe'" in capsys.readouterr().err


def test_times() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert rfc3339(moment) == "2026-01-02T03:04:05Z"
    assert rfc3339_micro(moment) == "2026-01-02T03:04:05.678901Z"
    assert parse_rfc3339("2026-01-02T04:04:05.678901+01:00") == moment
    with pytest.raises(ValueError, match="no time zone"):
        parse_rfc3339("2026-01-02T03:04:05")


def test_trace_adds_up() -> None:
    clock = FakeClock()
    trace = Trace(clock)
    with trace.step("define domain"):
        clock.step(0.25)
    clock.step(0.1)
    assert trace.fields() == {"define_domain_ms": 250.0, "total_ms": 350.0}
