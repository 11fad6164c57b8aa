"""What a launcher does not import at a start, and that it gets it all the same when it is wanted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("libvirt")

STARTED = """
import gc, sys
from virt_launcher.process.lighten import LATER, Later, lighten, settled
lighten()
import json
from virt_launcher.process.app import App
from virt_launcher.process.assembly import Assembly
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", STARTED + code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_start_imports_none_of_it() -> None:
    code = """
loaded = [name for name in LATER if not isinstance(sys.modules[name], Later)]
unwanted = ["ssl", "typing_extensions", "asyncio.events", "google.protobuf.text_format", "virt_launcher.probe.probe"]
print(json.dumps([loaded, [name for name in unwanted if name in sys.modules]]))
"""
    # The last line of it uses json, after it has looked.
    assert json.loads(run(code)) == [[], []]


def test_who_wants_it_gets_it() -> None:
    code = """
import asyncio, hashlib, inspect, shutil
import asyncio.events
from json import loads
from google.protobuf.internal import python_message
assert loads("[1]") == [1] and json.dumps(2) == "2"
assert inspect.signature(lambda x: x).parameters.keys() == {"x"}
assert hashlib.sha256(b"").hexdigest().startswith("e3b0") and shutil.which("sh")
assert asyncio.run(asyncio.sleep(0, 5)) == 5 and asyncio.events.AbstractEventLoop
assert python_message.GeneratedProtocolMessageType
assert not [name for name in ("json", "asyncio", "inspect") if isinstance(sys.modules[name], Later)]
"""
    run(code)


def test_garbage_is_looked_for_again_once_it_is_up() -> None:
    code = """
assert not gc.isenabled()
settled()
assert gc.isenabled() and gc.get_freeze_count() > 10000
"""
    run(code)


def test_messages_and_structs_work_without_what_was_left_out() -> None:
    code = """
from virt_core.apis.base import decode, encode
from virt_core.apis.vmi import VirtualMachineInstance
from virt_protos.launcher.v1 import launcher_pb2 as pb
assert decode(encode(VirtualMachineInstance()), VirtualMachineInstance) == VirtualMachineInstance()
message = pb.Move(uid="x")
assert pb.Move.FromString(message.SerializeToString()).uid == "x" and "x" in str(message)
"""
    run(code)
