"""Guest agents that lie, that never end, that are old, and that take another's place: from the guest, over the real channel.

Each stands in the guest where its agent would, before that is started: nobody has to be quick.
"""

# ruff: noqa: E501 - lines of a shell script
from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.test_guest_faults import Cache, boot_with
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

PLACE = "/usr/sbin/qemu-ga"
#: What libvirt and the launcher may have, with all the guest's lies in them.
MAX_KIB = 128 << 10
MAX_MESSAGE = 64 << 10
BUSY_S = 120

#: @CASES@ are the cases of a shell: what it answers to which command, at once: what takes long is made before (@PREPARE@).
#: While nobody is on the host's side of the channel, a read ends at once.
AGENT = r"""#!/bin/sh
[ -s /run/qemu-ga.pid ] && { old=$(cat /run/qemu-ga.pid); while kill $old; do usleep 20000; done; }
(
@PREPARE@
exec 3<>/dev/virtio-ports/org.qemu.guest_agent.0
while :; do
  read -r line <&3 || { usleep 20000; continue; }
  case "$line" in
  *guest-sync*) id=${line##*id\":}; printf '{"return":%s}\n' "${id%%\}*}" >&3 ;;
  @CASES@
  *) printf '{"error":{"class":"CommandNotFound","desc":"no"}}\n' >&3 ;;
  esac
done
) > /dev/null 2>&1 &
"""
_NAMED = r"""*get-osinfo*) printf '{"return":{"id":"liar"}}\n' >&3 ;;"""
_PAD = r"""for (pad = "x"; length(pad) < @LENGTH@;) pad = pad pad;"""
_INTERFACES = r"""
awk 'BEGIN { @PAD@ printf "{\"return\":["
  for (i = 0; i < @COUNT@; i++) printf "%s{\"name\":\"%s%d\",\"hardware-address\":\"02:00:00:00:%02x:%02x\",\"ip-addresses\":[{\"ip-address\":\"10.9.%d.%d\",\"ip-address-type\":\"ipv4\",\"prefix\":24}]}", (i ? "," : ""), pad, i, i / 256, i % 256, i / 256, i % 256
  print "]}" }' > /run/interfaces
"""
_TOLD = "*network-get-interfaces*) cat /run/interfaces >&3 ;;\n"


def interfaces(count: int, length: int) -> str:
    """So many, with names of so many letters at least."""
    return _INTERFACES.replace("@PAD@", _PAD).replace("@COUNT@", str(count)).replace("@LENGTH@", str(length))


LONG_NAME = r"""*get-osinfo*) awk 'BEGIN { @PAD@ printf "{\"return\":{\"id\":\"liar\",\"name\":\"%s\"}}\n", pad }' >&3 ;;
""".replace("@PAD@", _PAD).replace("@LENGTH@", "4000")
NONSENSE = r"""
  *get-osinfo*) printf '{"return":{"id":"liar","name":[{}],"version":7}}\n' >&3 ;;
  *host-name*) printf '{"return":{"host-name":"\377\376"}}\n' >&3 ;;
  *timezone*) printf '{"return":{"zone":{},"offset":"x"}}\n' >&3 ;;
  *guest-info*) printf '{"return":{"version":[1],"supported_commands":{"name":"guest-ping"}}}\n' >&3 ;;
  *network-get-interfaces*) printf '{"return":[1,{"name":[]},{"ip-addresses":7}]}\n' >&3 ;;
  *fsinfo*) printf '{"return":[{"mountpoint":"\377\376","name":[[[1]]]}]}\n' >&3 ;;
  *get-users*) printf 'no JSON at all\n' >&3 ;;
"""
ENDLESS = (
    _NAMED + r"""*get-users*) { printf '{"return":[{"user":"'; head -c 1073741824 /dev/zero | tr '\0' x; } >&3 ;;"""
)
OLD = r"""
  *guest-info*) printf '{"return":{"version":"0.12","supported_commands":[{"name":"guest-ping","enabled":true}]}}\n' >&3 ;;
  *network-get-interfaces*) printf '{"return":[{"name":"eth0","hardware-address":"02:00:00:00:00:07"}]}\n' >&3 ;;
"""


def put(place: str, cases: str, prepare: str = "") -> str:
    """User data that has such an agent in that place before the guest starts its own."""
    text = AGENT.replace("@CASES@", cases.strip()).replace("@PREPARE@", prepare)
    script = base64.b64encode(text.encode()).decode()
    return (
        f"#cloud-config\nwrite_files:\n- path: {place}\n  permissions: '0755'\n  encoding: b64\n  content: {script}\n"
    )


def sizes(box: Sandbox) -> list[int]:
    daemons = box.descendants("libvirtd") + box.descendants("virtqemud")
    assert daemons
    return [box.memory(pid)["Pss"] for pid in (box.pid, *daemons)]


def stays_small_and_ours(box: Sandbox) -> None:
    assert max(len(domain.SerializeToString()) for domain in box.handler.domains) < MAX_MESSAGE
    assert max(sizes(box)) < MAX_KIB
    box.stub.Pause(pb.PauseRequest(), timeout=30)
    eventually(lambda: box.handler.domains[-1].reason == "User")
    box.stub.Unpause(pb.UnpauseRequest(), timeout=30)
    eventually(lambda: box.handler.domains[-1].state == pb.DOMAIN_STATE_RUNNING)


def refused(ask: Callable[[], object]) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        ask()
    assert failure.value.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INTERNAL)


def given_up(box: Sandbox) -> None:
    eventually(lambda: "GuestAgentGivenUp" in [remark.reason for remark in box.handler.remarks], within_s=BUSY_S)
    assert not box.handler.domains[-1].agent_connected


@pytest.mark.parametrize("count", [100, 10_000])
def test_long_lies_are_cut(box: Sandbox, capability_cache: Cache, guest_files: Path, count: int) -> None:
    """Of ten thousand small interfaces libvirt itself passes none on."""
    length = 100_000 // count
    boot_with(box, capability_cache, guest_files, put(PLACE, LONG_NAME + _TOLD, interfaces(count, length)))
    liar = box.handler.wait_for(lambda d: d.os_info.id == "liar", BUSY_S)
    assert len(liar.os_info.name) == 256
    assert len(liar.interfaces) <= 64
    assert all(len(nic.guest_name) <= 256 for nic in liar.interfaces)
    assert liar.interfaces or count > 100
    stays_small_and_ours(box)


def test_more_than_libvirt_takes_stays_small(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    """More than ten megabytes of interfaces, whose beginning libvirt has and throws away. It asks such an agent no more,
    and so nobody is told that there is one."""
    boot_with(box, capability_cache, guest_files, put(PLACE, _NAMED + _TOLD, interfaces(10_000, 1000)))
    given_up(box)
    refused(lambda: box.stub.GetUsers(pb.GetUsersRequest(), timeout=30))
    stays_small_and_ours(box)


def test_nonsense_is_nothing(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    """What is no JSON libvirt does not take, and asks such an agent no more."""
    boot_with(box, capability_cache, guest_files, put(PLACE, NONSENSE))
    given_up(box)
    liar = box.handler.domains[-1]
    assert (liar.agent_version, list(liar.agent_commands), liar.os_info.name) == ("", [], "")
    refused(lambda: box.stub.GetFilesystems(pb.GetFilesystemsRequest(), timeout=30))
    refused(lambda: box.stub.GetUsers(pb.GetUsersRequest(), timeout=30))
    stays_small_and_ours(box)


def test_a_gibibyte_is_not_waited_for(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    boot_with(box, capability_cache, guest_files, put(PLACE, ENDLESS))
    box.handler.wait_for(lambda d: d.os_info.id == "liar", BUSY_S)
    refused(lambda: box.stub.GetUsers(pb.GetUsersRequest(), timeout=30))
    refused(lambda: box.stub.GetUsers(pb.GetUsersRequest(), timeout=30))
    stays_small_and_ours(box)


def test_an_old_agent_tells_what_it_can(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    boot_with(box, capability_cache, guest_files, put(PLACE, OLD))
    domain = box.handler.wait_for(lambda d: d.agent_version == "0.12", BUSY_S)
    assert [nic.guest_name for nic in domain.interfaces] == ["eth0"]
    assert list(domain.agent_commands) == ["guest-ping"]
    with pytest.raises(grpc.RpcError) as failure:
        box.stub.Freeze(pb.FreezeRequest(unfreeze_timeout_seconds=5), timeout=30)
    assert failure.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED


def test_an_agent_in_anothers_place_is_asked_anew(box: Sandbox, capability_cache: Cache, guest_files: Path) -> None:
    """It opens the channel as soon as the first has closed it: libvirt may be told of both at once."""
    boot_with(box, capability_cache, guest_files, put("/usr/sbin/other", OLD))
    first = box.handler.wait_for(lambda d: bool(d.agent_version), BUSY_S)
    assert first.agent_version != "0.12"
    run = {"execute": "guest-exec", "arguments": {"path": "/usr/sbin/other"}}
    box.virsh("qemu-agent-command", "ns_vm1", json.dumps(run))
    box.handler.wait_for(lambda d: d.agent_version == "0.12", BUSY_S)
