"""The runc commands that the node uses, with their deadlines and their errors in our words."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virt_local.node.messages import plain_message
from virt_local.node.runtime.monitor import StartError

_DEADLINE_S = 30.0


class RuncError(RuntimeError):
    """runc failed; the text is its last message."""


@dataclass(frozen=True)
class Runc:
    program: str
    root: Path

    def start(self, container_id: str) -> None:
        """Lets the program of a created container begin."""
        try:
            self._run("start", container_id)
        except RuncError as err:
            raise StartError(str(err)) from err

    def update(self, container_id: str, resources: dict[str, Any]) -> None:
        """Changes the limits of a running container; what is not named stays."""
        self._run("update", "--resources", "-", container_id, text=json.dumps(resources))

    def is_created(self, container_id: str) -> bool:
        """Made but not started: runc keeps a FIFO exactly until the start."""
        return (self.root / container_id / "exec.fifo").exists()

    def delete(self, container_id: str) -> None:
        """Kills what is left and forgets the container. Fine when runc does not know it."""
        if (self.root / container_id).exists():
            self._run("delete", "--force", container_id)

    def version(self) -> str:
        """`1.1.5`, for people who look at the node."""
        words = self._run("--version").split()
        return words[2] if len(words) > 2 else ""

    def exec_command(self, container_id: str, args: list[str], *, terminal: bool = False) -> list[str]:
        flags = ["--tty"] if terminal else []
        return [self.program, f"--root={self.root}", "exec", *flags, container_id, *args]

    def known(self) -> list[str]:
        return [entry.name for entry in self.root.iterdir()] if self.root.is_dir() else []

    def _run(self, *args: str, text: str = "") -> str:
        command = [self.program, f"--root={self.root}", *args]
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
        except subprocess.TimeoutExpired as err:
            raise RuncError(f"runc {args[0]} took longer than {_DEADLINE_S:.0f} s") from err
        if done.returncode != 0:
            raise RuncError(plain_message(done.stderr) or f"runc {args[0]} ended with code {done.returncode}")
        return done.stdout
