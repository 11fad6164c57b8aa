"""VMs of the end-to-end tests: a manifest, the verbs that tests speak in, and a watcher of the words they print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot

BOOT_S = 90.0


def vm(name: str, strategy: str, **changes: Any) -> dict[str, Any]:
    """A VM that boots the test guest's kernel, with little patience at its end."""
    machine = kernel_boot(name)
    machine["spec"]["terminationGracePeriodSeconds"] = 5
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {
            "runStrategy": strategy,
            "template": {"metadata": {"labels": {"vm": name}}, "spec": machine["spec"]},
            **changes,
        },
    }


class Watcher:
    """The distinct words that a watcher of one VM sees."""

    def __init__(self, space: Space, name: str) -> None:
        self._args = ["kubectl", "-n", space.namespace, "get", "vm", name, "-w", "-o", "json", "--output-watch-events"]
        self._env = space.engine.env()
        self.words: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[Watcher]:
        process = subprocess.Popen(self._args, env=self._env, stdout=subprocess.PIPE, text=True)
        thread = threading.Thread(target=self._read, args=(process,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            process.terminate()
            process.wait(10)
            thread.join(10)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        decoder, text = json.JSONDecoder(), ""
        for line in process.stdout:
            text += line
            try:
                event, end = decoder.raw_decode(text)
            except json.JSONDecodeError:
                continue
            text = text[end:].lstrip()
            word = event["object"].get("status", {}).get("printableStatus")
            if word and self.words[-1:] != [word]:
                self.words.append(word)


class Machine:
    """A VM of a test, in the words of a test."""

    def __init__(self, space: Space, name: str) -> None:
        self.space, self.name = space, name

    def get(self) -> Any:
        return self.space.engine.get("-n", self.space.namespace, "vm", self.name)

    def status(self) -> dict[str, Any]:
        return dict(self.get().get("status", {}))

    def printable(self, word: str, *, within_s: float = BOOT_S) -> dict[str, Any]:
        def check() -> dict[str, Any] | None:
            status = self.status()
            return status if status.get("printableStatus") == word else None

        return dict(eventually(check, within_s=within_s, what=f"vm {self.name} prints {word}"))

    def uid(self) -> str:
        return str(self.space.vmi(self.name)["metadata"]["uid"])

    def has_vmi(self) -> bool:
        return any(v["metadata"]["name"] == self.name for v in self._vmis())

    def _vmis(self) -> list[Any]:
        return list(self.space.engine.get("-n", self.space.namespace, "vmi")["items"])

    def strategy(self, strategy: str) -> None:
        patch = json.dumps({"spec": {"runStrategy": strategy}})
        self.space.kubectl("patch", "vm", self.name, "--type=merge", "-p", patch)

    def ask(self, *requests: dict[str, Any]) -> None:
        """Queues wishes, as the subresources start, stop and restart do."""
        patch = json.dumps({"status": {"stateChangeRequests": list(requests)}})
        self.space.kubectl("patch", "vm", self.name, "--subresource=status", "--type=merge", "-p", patch)

    def virtctl(self, verb: str, *options: str) -> None:
        self.space.virtctl(verb, self.name, *options)

    def restarted(self, old_uid: str) -> None:
        eventually(lambda: self.has_vmi() and self.uid() != old_uid, within_s=BOOT_S, what="another VMI")
        self.printable("Running")

    def kill_emulator(self) -> None:
        os.kill(self.space.engine.qemu_pid(self.space.namespace, self.name), signal.SIGKILL)


def make(space: Space, name: str, strategy: str, **changes: Any) -> Machine:
    space.apply(vm(name, strategy, **changes))
    return Machine(space, name)


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in status.get("conditions", [])}
