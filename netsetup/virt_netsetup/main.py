"""The program: a NetPlan as JSON on standard input, a NetReport as JSON on standard output, exit code 0 or 1.

`virt-netsetup serve` is the same for any number of Pods: see `serve`.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from virt_core.apis.base import decode, encode
from virt_core.apis.netplan import MAX_PLAN, SERVE, NetPlan, NetReport, NetReportError
from virt_netsetup import actions, compose, look
from virt_netsetup.confine import retire
from virt_netsetup.dhcp import Dnsmasq
from virt_netsetup.firewall import Firewall
from virt_netsetup.kernel import LinuxKernel
from virt_netsetup.model import NetsetupError
from virt_netsetup.process import CLONE_NEWNET, Placement, enter_namespace
from virt_netsetup.rehearse import rehearse
from virt_netsetup.serve import Parent, Request
from virt_netsetup.sight import Sight
from virt_netsetup.state import State
from virt_netsetup.steps import World

USAGE = """usage: virt-netsetup < plan.json > report.json
       virt-netsetup serve [SECONDS]
Wire a guest to its Pod's network. The plan's action is setup, check, observe or teardown.
As a server its standard input is a socket for packets, and a Pod may take so many seconds (25)."""
WITHIN_S = 25.0


def run(plan: NetPlan, handed: Request | None = None) -> NetReport:
    compose.check_plan(plan)
    state = State(Path(plan.state_dir, plan.pod_uid or plan.vmi_uid))
    dhcp = Dnsmasq(state.directory, _placement(plan, handed))
    path = _own(handed.netns) if handed is not None else plan.netns_path or f"/proc/{plan.pod_pid}/ns/net"
    try:
        enter_namespace(path, CLONE_NEWNET)
    except OSError as error:
        if plan.action == "teardown":
            return actions.teardown_without_namespace(dhcp, state)
        raise NetsetupError("netns", f"the Pod's network namespace cannot be entered: {error}") from error
    namespace = os.stat("/proc/self/ns/net").st_ino
    return _act(plan, World(LinuxKernel(), Firewall(), dhcp, namespace), state)


def _placement(plan: NetPlan, handed: Request | None) -> Placement:
    if handed is not None:
        return Placement(plan.pod_pid, _own(handed.pidns), handed.process)
    return Placement(plan.pod_pid if os.path.exists(f"/proc/{plan.pod_pid}/ns/pid") else 0)


def _own(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _act(plan: NetPlan, world: World, state: State) -> NetReport:
    if plan.action == "teardown":
        return actions.teardown(world, state)
    if plan.action == "observe":
        return look.observe(plan, world, state, Sight())
    if plan.action == "check":
        return actions.check(plan, world, state)
    return actions.setup(plan, world, state)


def answer(request: bytes, handed: Request | None = None) -> NetReport:
    """Every failure becomes an answer: the handler has no other way to learn of it."""
    try:
        return run(decode(request, NetPlan), handed)
    except NetsetupError as error:
        return _failed(error.step, error.message, error.critical)
    except (ValueError, RecursionError) as error:
        return _failed("plan", str(error), True)
    except OSError as error:
        return _failed("kernel", str(error), False)


def _failed(step: str, message: str, critical: bool) -> NetReport:
    return NetReport(error=NetReportError(step=step, message=message, critical=critical))


def work(request: Request) -> NetReport:
    """In a child of the server."""
    return answer(os.pread(request.plan, MAX_PLAN, 0), request)


def serve(within_s: float) -> int:
    control = socket.socket(fileno=os.dup(0))
    retire()
    rehearse()
    Parent(control, work, within_s).run()
    return 0


def main() -> int:
    words = sys.argv[1:]
    # Whoever starts us: what we make is ours.
    os.umask(0o077)
    if words[:1] == [SERVE] and len(words) <= 2:
        return serve(float(words[1]) if len(words) == 2 else WITHIN_S)
    if words:
        sys.stderr.write(USAGE + "\n")
        return 0 if words[0] in ("-h", "--help") else 2
    report = answer(sys.stdin.buffer.read())
    sys.stdout.buffer.write(encode(report) + b"\n")
    sys.stdout.buffer.flush()
    return 1 if report.error else 0


if __name__ == "__main__":
    sys.exit(main())
