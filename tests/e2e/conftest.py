"""One engine for the whole session, one namespace for each test, nothing left behind at the end."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .console import Console
from .engine import Engine, VirtLocal, eventually
from .kubernetes import attach, wanted


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """virt-local, or with VIRTPOD_ENGINE=kubernetes the real cluster; the tests do not ask which."""
    if os.geteuid() != 0:
        pytest.fail("end-to-end tests need root")
    engine = attach() if wanted() else VirtLocal()
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()
    left = engine.leftovers()
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture(scope="session")
def pair(engine: Engine) -> Iterator[Engine]:
    """The engine, if it has two nodes; else a second virt-local that has, which stays for all who need it."""
    if len(engine.get("nodes")["items"]) > 1:
        yield engine
        return
    local = VirtLocal(nodes=2, letter="p")
    try:
        local.start()
        yield local
    finally:
        local.stop()
    left = local.leftovers()
    assert not left, "left behind:\n" + "\n".join(left)


class Space:
    """A namespace of one test, with the verbs that tests speak in."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self.engine = engine
        self.namespace = namespace

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60) -> str:
        return self.engine.kubectl("-n", self.namespace, *args, stdin=stdin, timeout=timeout)

    def virtctl(self, *args: str, timeout: float = 60) -> str:
        return self.engine.virtctl("-n", self.namespace, *args, timeout=timeout)

    def apply(self, manifest: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def refuse(self, manifest: dict[str, Any]) -> str:
        """Applies what must be refused, and gives the error text."""
        done = self.engine.run("kubectl", "-n", self.namespace, "apply", "-f", "-", stdin=json.dumps(manifest))
        assert done.returncode != 0, f"accepted: {done.stdout}"
        return done.stderr

    def vmi(self, name: str) -> Any:
        return self.engine.get("-n", self.namespace, "vmi", name)

    def ready(self, name: str, *, within_s: int = 120) -> Any:
        """Waits until the VMI is Ready; gives it. A VM may not have made it yet, and `kubectl wait` wants it there."""
        eventually(lambda: self.vmi(name), within_s=within_s, what=f"vmi {name}")
        wait = ("wait", "--for=condition=Ready", f"--timeout={within_s}s", f"vmi/{name}")
        done = self.engine.run("kubectl", "-n", self.namespace, *wait, timeout=within_s + 20)
        assert done.returncode == 0, done.stderr + self.virtctl("explain", "vmi", name)
        return self.vmi(name)

    def phase(self, name: str, phase: str, *, within_s: float = 60) -> Any:
        def check() -> Any:
            vmi = self.vmi(name)
            return vmi if vmi.get("status", {}).get("phase") == phase else None

        return eventually(check, within_s=within_s, what=f"vmi {name} in phase {phase}")

    def running(self, name: str, *, within_s: float) -> None:
        """Waits until the VMI is Running; if that does not come, the failure says where it stands."""
        try:
            self.phase(name, "Running", within_s=within_s)
        except AssertionError as error:
            told = self.engine.run("virtctl", "-n", self.namespace, "explain", "vmi", name)
            raise AssertionError(f"{error}\n{told.stdout}{told.stderr}") from None

    def boot(self, manifest: dict[str, Any]) -> Any:
        self.apply(manifest)
        return self.ready(manifest["metadata"]["name"])

    def console(self, name: str) -> Console:
        return Console(self.engine, self.namespace, name)

    def gone(self, kind: str, *, within_s: float = 60) -> None:
        eventually(
            lambda: not self.engine.get("-n", self.namespace, kind)["items"], within_s=within_s, what=f"no {kind} left"
        )


KUBEVIRT = ("-n", "virtpod", "kubevirt", "kubevirt")
COMPONENTS = ("virt-api", "virt-controller", "virt-handler")
Configure = Callable[[dict[str, Any]], None]
_numbers = itertools.count(1)


@pytest.fixture
def space(engine: Engine) -> Iterator[Space]:
    namespace = f"e2e-{os.getpid()}-{next(_numbers)}"
    engine.kubectl("create", "namespace", namespace)
    space = Space(engine, namespace)
    yield space
    engine.drop_namespace(namespace)


@pytest.fixture
def configure(engine: Engine) -> Iterator[Configure]:
    """Lays a configuration over the one of the cluster; the old one comes back at the end, and nobody restarted."""
    before = engine.get(*KUBEVIRT)["spec"].get("configuration", {})
    pids = {name: engine.component_pids(name) for name in COMPONENTS}

    def write(configuration: dict[str, Any]) -> None:
        merged = {key: {**before.get(key, {}), **value} if isinstance(value, dict) else value
                  for key, value in configuration.items()}  # fmt: skip
        replace(engine, {**before, **merged})

    yield write
    replace(engine, before)
    assert {name: engine.component_pids(name) for name in COMPONENTS} == pids


def replace(engine: Engine, configuration: dict[str, Any]) -> None:
    patch = json.dumps([{"op": "add", "path": "/spec/configuration", "value": configuration}])
    engine.kubectl("patch", *KUBEVIRT, "--type=json", "-p", patch)


def admitted(space: Space, manifest: dict[str, Any]) -> Any:
    """The object as admission would leave it, or None where it is refused."""
    args = ("-n", space.namespace, "create", "--dry-run=server", "-o", "json", "-f", "-")
    done = space.engine.run("kubectl", *args, stdin=json.dumps(manifest))
    return json.loads(done.stdout) if done.returncode == 0 else None
