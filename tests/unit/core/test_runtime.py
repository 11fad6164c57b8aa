"""Logs, metrics, health, settings, clock and traces."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from framework.waiting import eventually, running

from virt_core.runtime import logs
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.health import HealthServer, answer, split_address
from virt_core.runtime.metrics import Counter, Gauge, Histogram, Registry
from virt_core.runtime.settings import EnvParser, click_settings, env_name
from virt_core.runtime.times import parse_rfc3339, rfc3339, rfc3339_micro
from virt_core.runtime.trace import Trace


@pytest.fixture(params=[False, True], ids=["structlog", "light"])
def light(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Both ways to write a line have to do the same."""
    root = logging.getLogger()
    handlers, level, sink = list(root.handlers), root.level, logs._Route.sink
    yield bool(request.param)
    root.handlers[:] = handlers
    root.setLevel(level)
    logs._Route.sink = staticmethod(sink)


def test_a_line_is_one_json_object(light: bool, capsys: pytest.CaptureFixture[str]) -> None:
    log = logs.get_logger("m").bind(vmi="default/a")
    logs.configure("virt-test", json=True, light=light)
    log.debug("hidden")
    log.info("started", pid=7, when=datetime(2026, 1, 1, tzinfo=UTC), odd=object)
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert list(event) == ["level", "timestamp", "component", "msg", "logger", "vmi", "pid", "when", "odd"]
    assert (event["level"], event["component"], event["msg"]) == ("info", "virt-test", "started")
    assert (event["vmi"], event["pid"], event["logger"]) == ("default/a", 7, "m")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["timestamp"])
    assert abs(parse_rfc3339(event["timestamp"]) - datetime.now(UTC)) < timedelta(minutes=1)


def test_exceptions_and_foreign_loggers_end_up_in_the_same_stream(
    light: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("virt-test", level="debug", json=True, light=light)
    try:
        raise ValueError("kaput")
    except ValueError as err:
        logs.get_logger().exception("oops")
        logging.getLogger("urllib3").error("lost", exc_info=err)
    logging.getLogger("urllib3").warning("retry %d", 3, exc_info=True)
    logging.getLogger("urllib3").info("chatter")
    first, lost, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["level"], "exc_info" in first) == ("error", False)
    assert first["exception"].startswith("Traceback")
    assert first["exception"].endswith("ValueError: kaput")
    assert lost["exception"].endswith("ValueError: kaput")
    assert (second["level"], second["logger"], second["msg"]) == ("warning", "urllib3", "retry 3")
    assert "exception" not in second


def test_a_field_that_can_not_be_encoded_does_not_cost_the_line(
    light: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("virt-test", json=True, light=light)
    logs.get_logger().info("odd", value="\udcff")
    assert json.loads(capsys.readouterr().err)["msg"] == "'odd'"


def test_a_field_may_have_any_name_but_does_not_replace_the_keys_of_the_line(
    light: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("virt-test", json=True, light=light)
    logs.get_logger().info("kept", component="other", level="loud", timestamp="never", event="x")
    event = json.loads(capsys.readouterr().err)
    assert (event["msg"], event["component"], event["level"]) == ("kept", "virt-test", "info")
    assert event["timestamp"] != "never"


def test_the_level_decides_what_is_written(light: bool, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("virt-test", level="error", json=True, light=light)
    log = logs.get_logger()
    log.warning("hidden")
    log.error("seen")
    assert [json.loads(line)["msg"] for line in capsys.readouterr().err.splitlines()] == ["seen"]
    with pytest.raises(ValueError, match="loud"):
        logs.configure("virt-test", level="loud", light=light)


def test_pretty_on_request(light: bool, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("virt-test", json=False, light=light)
    logs.get_logger().info("hello", who="you")
    line = capsys.readouterr().err
    assert "hello" in line
    assert not line.startswith("{")
    assert "virt-test" not in line


def test_a_service_logs_with_structlog_and_only_when_configured() -> None:
    code = (
        "import sys; from virt_core.runtime import logs; log = logs.get_logger('m');"
        "before = 'structlog' in sys.modules;"
        "logs.configure('x', json=True); import structlog;"
        "print(before, structlog.is_configured()); structlog.get_logger().info('direct', a=1)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert out.stdout.strip() == "False True"
    event = json.loads(out.stderr)
    assert (event["component"], event["msg"], event["a"]) == ("x", "direct", 1)


def test_light_logs_do_not_import_structlog_or_asyncio() -> None:
    """Each launcher would pay for it."""
    code = (
        "import sys; from virt_core.runtime import logs, supervisor, files, inotify, procs, settings, clock, trace;"
        "logs.configure('x', json=True, light=True); logs.get_logger().info('x');"
        "logs.configure('x', json=False, light=True); logs.get_logger().info('x');"
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


def test_a_sleeper_whose_time_has_come_no_longer_waits() -> None:
    """Also while it has not run yet: whoever steps the time by hand would step once too often."""
    clock = FakeClock()
    sleeper = threading.Thread(target=clock.wait, args=(threading.Event(), 2.0))
    sleeper.start()
    eventually(lambda: clock.waiters() == 1)
    clock.step(2.0)
    assert clock.waiters() == 0
    sleeper.join(5)
