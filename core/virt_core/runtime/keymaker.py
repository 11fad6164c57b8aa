"""Makes a key, with a certificate or a request for one, in a process of its own.

What makes certificates (`cryptography`) costs 10 MiB, which servers need for this one moment only.
"""

from __future__ import annotations

import subprocess
import sys

_TIMEOUT_S = 30.0
_MARK = b"-----BEGIN CERTIFICATE"
_STAND_IN = """
import sys
from datetime import UTC, datetime
from virt_core.runtime.x509 import throw_away
pair = throw_away(sys.argv[1], datetime.now(UTC))
sys.stdout.buffer.write(pair.key_pem + pair.cert_pem)
"""
_REQUEST = """
import sys
from virt_core.runtime.x509 import Leaf, key_pem, make_request, new_key
key = new_key()
sys.stdout.buffer.write(key_pem(key) + make_request(key, Leaf(sys.argv[1], names=tuple(sys.argv[2:]))))
"""


def stand_in(name: str) -> tuple[bytes, bytes]:
    """A key and a certificate that nobody trusts."""
    return _made(_STAND_IN, name)


def request(common_name: str, *names: str) -> tuple[bytes, bytes]:
    """A key, and a request for a certificate of it."""
    return _made(_REQUEST, common_name, *names)


def _made(code: str, *arguments: str) -> tuple[bytes, bytes]:
    command = [sys.executable, "-c", code, *arguments]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_TIMEOUT_S).stdout
    key, _, rest = made.partition(_MARK)
    return key, _MARK + rest
