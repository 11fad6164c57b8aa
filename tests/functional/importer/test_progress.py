"""The port at which an importer says how far it is, and what a crowd can do to it."""

from __future__ import annotations

import socket

from framework.waiting import eventually

from virt_controller.datavolume.progress import ask
from virt_core.apis.base import from_plain
from virt_core.apis.pods import Pod
from virt_launcher.importer.progress import Meter, serve


def pod() -> Pod:
    return from_plain({"status": {"phase": "Running", "podIP": "127.0.0.1"}}, Pod)


def test_virt_controller_hears_how_far_it_is() -> None:
    meter = Meter()
    server = serve(meter, ("127.0.0.1", 0))
    port = server.server_address[1]
    try:
        unknown = ask(pod(), port)
        assert unknown is not None
        assert unknown.percent < 0
        meter.length, meter.taken = 400, 100
        told = ask(pod(), port)
        assert told is not None
        assert (told.percent, told.taken) == (25.0, 100)
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        assert eventually(lambda: ask(pod(), port) is None)
        for each in crowd:
            each.close()
        assert eventually(lambda: ask(pod(), port) is not None, within_s=10)
    finally:
        server.shutdown()
        server.server_close()
    assert ask(pod(), port) is None
