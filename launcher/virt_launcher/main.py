"""virt-launcher: runs one virtual machine in its Pod, as process 1 of the container."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from virt_launcher.process.lighten import lighten

if TYPE_CHECKING:
    from virt_core.runtime.supervisor import Supervisor
    from virt_launcher.probe.probe import Probe
    from virt_launcher.process.app import App
    from virt_launcher.process.children import Children
    from virt_launcher.settings import Settings


def main(argv: Sequence[str] | None = None) -> None:
    lighten()
    from virt_core.runtime.logs import configure
    from virt_launcher.process.children import Children, block_signals
    from virt_launcher.settings import parse

    settings = parse(sys.argv[1:] if argv is None else argv)
    configure("virt-launcher", settings.log_level, light=True)
    if settings.keep_after_failure:
        from virt_launcher.process.keeper import keep

        keep(settings.paths.command_socket)
    block_signals()
    from virt_core.runtime.supervisor import Supervisor

    if settings.node_probe is not None:
        from virt_launcher.probe.user import become_launcher

        become_launcher()
    supervisor = Supervisor("virt-launcher", grace_s=5.0)
    children = Children()
    children.adopt_orphans()
    supervisor.thread("signals", children.run)
    supervisor.on_stop(children.wake)
    supervisor.thread("launcher", _body(settings, supervisor, children).run, may_end=True)
    sys.exit(supervisor.run(signals=False))


def _body(settings: Settings, supervisor: Supervisor, children: Children) -> App | Probe:
    if settings.node_probe is None:
        from virt_launcher.process.app import App

        return App(settings, supervisor, children)
    from virt_launcher.probe.probe import Probe

    return Probe(settings, supervisor, children)


if __name__ == "__main__":
    main()
