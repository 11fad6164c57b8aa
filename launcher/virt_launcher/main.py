"""virt-launcher: runs one virtual machine in its Pod, as process 1 of the container."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence

from virt_core.runtime.logs import configure
from virt_launcher.process.children import Children, block_signals
from virt_launcher.settings import parse


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse(sys.argv[1:] if argv is None else argv)
    configure("virt-launcher", settings.log_level, light=True)
    if settings.keep_after_failure:
        from virt_launcher.process.keeper import keep

        keep(settings.paths.command_socket)
    block_signals()
    leave_out_asyncio_grpc()
    from virt_core.runtime.supervisor import Supervisor
    from virt_launcher.probe.probe import Probe
    from virt_launcher.process.app import App

    if settings.node_probe is not None:
        from virt_launcher.probe.user import become_launcher

        become_launcher()
    supervisor = Supervisor("virt-launcher", grace_s=5.0)
    children = Children()
    children.adopt_orphans()
    body = App(settings, supervisor, children) if settings.node_probe is None else Probe(settings, supervisor, children)
    supervisor.thread("signals", children.run)
    supervisor.on_stop(children.wake)
    supervisor.thread("launcher", body.run, may_end=True)
    sys.exit(supervisor.run(signals=False))


def leave_out_asyncio_grpc() -> None:
    """grpc imports its asyncio variant even if nobody wants it: some 8 ms and 600 KiB for every VM."""
    sys.modules.setdefault("grpc.aio", types.ModuleType("grpc.aio"))


if __name__ == "__main__":
    main()
