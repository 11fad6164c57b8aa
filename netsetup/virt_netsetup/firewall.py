"""nftables through libnftables' JSON interface, by ctypes; by the `nft` program where the library is missing."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from virt_netsetup.model import NetsetupError
from virt_netsetup.tables import Command, Table

LIBRARY = "libnftables.so.1"
OUTPUT_JSON = 1 << 4
TIMEOUT_S = 10


class Runner(Protocol):
    def run(self, commands: list[Command]) -> list[dict[str, Any]]: ...


class Firewall:
    """Tables of ours in this namespace."""

    def __init__(self, runner: Runner | None = None) -> None:
        self._runner = runner

    def install(self, tables: Sequence[Table]) -> None:
        """All in one transaction."""
        self._run([command for table in tables for command in table.commands()])

    def remove(self, family: str, name: str) -> None:
        self._run([{"delete": {"table": {"family": family, "name": name}}}])

    def exists(self, family: str, name: str) -> bool:
        listed = self._run([{"list": {"tables": {"family": family}}}])
        return any(entry.get("table", {}).get("name") == name for entry in listed)

    def has(self, table: Table) -> bool:
        """Whether the table is there, in this version and with all its rules."""
        if not self.exists(table.family, table.name):
            return False
        listed = self._list(table.family, table.name)
        chains = {entry["chain"]["name"] for entry in listed if "chain" in entry}
        rules = sum("rule" in entry for entry in listed)
        return table.marker in chains and rules == len(table.rules)

    def entries(self, family: str, name: str) -> list[dict[str, Any]]:
        """What is in a table, in the words of nftables; nothing if there is none."""
        return self._list(family, name) if self.exists(family, name) else []

    def _list(self, family: str, name: str) -> list[dict[str, Any]]:
        return self._run([{"list": {"table": {"family": family, "name": name}}}])

    def _run(self, commands: list[Command]) -> list[dict[str, Any]]:
        if self._runner is None:
            self._runner = open_runner()
        return self._runner.run(commands)


def preload() -> None:
    """The library stays when we fork. Its context is made later: it belongs to a namespace."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(LIBRARY)


def open_runner() -> Runner:
    try:
        return LibraryRunner()
    except OSError:
        return ProgramRunner()


class LibraryRunner:
    """0.4 ms a transaction, where starting `nft` takes tens."""

    def __init__(self) -> None:
        library = ctypes.CDLL(LIBRARY)
        library.nft_ctx_new.restype = ctypes.c_void_p
        library.nft_ctx_new.argtypes = [ctypes.c_uint32]
        library.nft_ctx_output_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
        library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        for name in ("nft_ctx_buffer_output", "nft_ctx_buffer_error"):
            getattr(library, name).argtypes = [ctypes.c_void_p]
        for name in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
            getattr(library, name).argtypes = [ctypes.c_void_p]
            getattr(library, name).restype = ctypes.c_char_p
        self._library = library
        self._context = ctypes.c_void_p(library.nft_ctx_new(0))
        library.nft_ctx_output_set_flags(self._context, OUTPUT_JSON)
        library.nft_ctx_buffer_output(self._context)
        library.nft_ctx_buffer_error(self._context)

    def run(self, commands: list[Command]) -> list[dict[str, Any]]:
        request = msgspec.json.encode({"nftables": commands})
        failed = self._library.nft_run_cmd_from_buffer(self._context, request)
        output = self._library.nft_ctx_get_output_buffer(self._context)
        error = self._library.nft_ctx_get_error_buffer(self._context)
        return _answer(failed, output.decode(), error.decode(errors="replace"))


class ProgramRunner:
    def run(self, commands: list[Command]) -> list[dict[str, Any]]:
        import subprocess

        request = msgspec.json.encode({"nftables": commands}).decode()
        try:
            done = subprocess.run(
                ["nft", "-j", "-f", "-"], input=request, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except FileNotFoundError as error:
            raise NetsetupError("firewall", f"neither {LIBRARY} nor the nft program is installed", True) from error
        except subprocess.TimeoutExpired as error:
            raise NetsetupError("firewall", f"nft did not end within {TIMEOUT_S} s") from error
        return _answer(done.returncode, done.stdout, done.stderr)


def _answer(failed: int, output: str, error: str) -> list[dict[str, Any]]:
    if failed:
        raise NetsetupError("firewall", f"nftables refused the rules: {error.strip() or output.strip()}")
    found: list[dict[str, Any]] = msgspec.json.decode(output)["nftables"] if output.strip() else []
    return found
