"""Asks an importer how far it is."""

from __future__ import annotations

import http.client

import msgspec

from virt_core.apis import importplan
from virt_core.apis.base import decode
from virt_core.apis.importplan import Progress
from virt_core.apis.pods import Pod

_TIMEOUT_S = 2.0
_MAX_ANSWER = 4096


def ask(pod: Pod, port: int = importplan.PORT) -> Progress | None:
    """None: it does not answer. A Pod may, and what it says is a number for people."""
    if pod.status.phase != "Running" or not pod.status.pod_ip:
        return None
    connection = http.client.HTTPConnection(pod.status.pod_ip, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", importplan.PATH_PROGRESS)
        answer = connection.getresponse()
        found = decode(answer.read(_MAX_ANSWER), Progress) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return None
    finally:
        connection.close()
    return found if found is not None and found.percent <= 100.0 else None
