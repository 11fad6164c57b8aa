"""A process of a Pod: in the Pod's cgroup, in its sockets' directory, with the rights of the launcher's user.

    python podprocess.py CGROUP DIRECTORY UID launcher VMI_UID    serves as the fake launcher does
    python podprocess.py CGROUP DIRECTORY UID hold COUNT          opens so many connections to notify-sock, keeps them
    python podprocess.py CGROUP DIRECTORY UID end                 says that the guest has shut down
    python podprocess.py CGROUP DIRECTORY UID flood               says that the guest runs, without end

CGROUP `-`: stays in that of the test, as a process of the node that belongs to no Pod. Prints one line when it has done
its work, or is about to.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import grpc
from fakelauncher import FakeLauncher

from virt_core.rpc.channel import unix_channel
from virt_core.rpc.status import failure_of
from virt_protos.launcher.v1 import launcher_pb2 as pb
from virt_protos.notify.v1 import notify_pb2
from virt_protos.notify.v1.notify_pb2_grpc import NotifyStub

NOTIFY = "notify-sock"
#: Above what an honest launcher of the same Pod has counted to.
_SEQUENCE = 1000
_TRIES = 20
#: Far more often than a launcher may say something.
_ENOUGH, _EVERY_S = 20, 0.02


def become(cgroup: str, directory: str, uid: int) -> None:
    if cgroup != "-":
        Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
    os.chdir(directory)
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def launcher(vmi_uid: str) -> None:
    FakeLauncher(Path(), vmi_uid).open()
    say("ready")
    threading.Event().wait()


def hold(count: int) -> None:
    """As many as it gets; when nobody is let in any more, it goes on with those that it has."""
    kept: list[socket.socket] = []
    refused = 0
    while len(kept) < count and refused < _TRIES:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(0.05)
        try:
            client.connect(NOTIFY)
        except OSError:
            client.close()
            refused += 1
        else:
            kept.append(client)
    say(f"{len(kept)}")
    threading.Event().wait()


def end() -> None:
    domain = pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason="Shutdown")
    try:
        with unix_channel(NOTIFY) as channel:
            NotifyStub(channel).DomainChanged(
                notify_pb2.DomainChangedRequest(domain=domain, sequence=_SEQUENCE), timeout=10
            )
    except grpc.RpcError as error:
        say(failure_of(error).code.name)
    else:
        say("OK")


def flood() -> None:
    domain = pb.Domain(state=pb.DOMAIN_STATE_RUNNING)
    pause, refused = threading.Event(), 0
    with unix_channel(NOTIFY) as channel:
        stub = NotifyStub(channel)
        for number in range(_SEQUENCE, 1 << 40):
            try:
                stub.DomainChanged(notify_pb2.DomainChangedRequest(domain=domain, sequence=number), timeout=10)
            except grpc.RpcError:
                refused += 1
                if refused == _ENOUGH:
                    say("refused")
            # So that it is the handler that is short of time, and not the machine.
            pause.wait(_EVERY_S)


if __name__ == "__main__":
    become(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    ACTS = {"launcher": launcher, "hold": lambda count: hold(int(count)), "end": end, "flood": flood}
    ACTS[sys.argv[4]](*sys.argv[5:])
