"""What can be done to a running guest from outside: look at its screen, reach its ports, reboot it, ask its agent."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .conftest import Space
from .engine import eventually
from .manifests import kernel_boot, vmi
from .subresource import Subresources, receive

pytestmark = pytest.mark.e2e


def of(name: str, sub: str) -> str:
    return f"virtualmachineinstances/{name}/{sub}"


def pixels(png: bytes) -> tuple[int, int, bytes]:
    """Width, height and the raw rows of a PNG with three bytes a pixel."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, colour = struct.unpack(">IIBB", png[16:26])
    assert (depth, colour) == (8, 2)
    at, data = 8, b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += length + 12
    return width, height, zlib.decompress(data)


def has_agent(space: Space, name: str) -> bool:
    conditions = space.vmi(name)["status"].get("conditions", [])
    return any(c["type"] == "AgentConnected" and c["status"] == "True" for c in conditions)


def test_screenshot_shows_what_the_guest_shows(space: Space) -> None:
    """A line that the guest writes to its screen changes the picture."""
    space.boot(vmi("screen"))
    calls = Subresources(space)
    with space.console("screen") as console:
        console.prompt(within_s=120)
        before = calls.get(of("screen", "vnc/screenshot"))
        assert before.status == 200, before.body
        console.shell("for i in 1 2 3 4 5 6; do echo 'VIRTPOD GUEST SAYS HELLO' > /dev/tty0; done")
        after = calls.get(of("screen", "vnc/screenshot"))
    width, height, rows = pixels(after.body)
    assert width >= 320
    assert height >= 200
    assert len(rows) == height * (1 + 3 * width)
    assert len(set(rows)) > 1, "the picture is all of one colour"
    assert rows != pixels(before.body)[2], "the guest wrote on its screen and the picture is the same"
    if keep := os.environ.get("VIRTPOD_KEEP_SCREENSHOT"):
        Path(keep).write_bytes(after.body)


def test_ports_of_the_guest_are_reached(space: Space) -> None:
    """Its echo server answers through the API server; a port where nobody listens is a plain error."""
    space.boot(kernel_boot("ports"))
    calls = Subresources(space)
    with space.console("ports") as console:
        console.prompt(within_s=120)
        console.expect("virtpod guest: ready", within_s=60) if "ready" not in console.seen else None

    async def echo(socket: aiohttp.ClientWebSocketResponse) -> bytes:
        blob = os.urandom(200_000)
        sending = asyncio.create_task(_send(socket, blob))
        answer = await receive(socket, len(blob))
        await sending
        return b"same" if answer == blob else b"different"

    assert calls.talk(of("ports", "portforward/7/tcp"), echo) == b"same"
    assert calls.talk(of("ports", "portforward/7"), echo) == b"same"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        calls.talk(of("ports", "portforward/9/tcp"), echo)
    assert refused.value.status == 500
    for path, status in (("portforward/0/tcp", 400), ("portforward/70000", 400), ("portforward/7/sctp", 400)):
        assert calls.get(of("ports", path)).status == status, path


async def _send(socket: aiohttp.ClientWebSocketResponse, blob: bytes) -> None:
    for start in range(0, len(blob), 10_000):
        await socket.send_bytes(blob[start : start + 10_000])


def test_soft_reboot_asks_and_reset_does_not(space: Space) -> None:
    """Both times the guest begins anew in the same VMI; only the soft one hears of it first."""
    uid = space.boot(kernel_boot("again"))["metadata"]["uid"]
    calls = Subresources(space)
    with space.console("again") as console:
        console.prompt(within_s=120)
        mark = len(console.seen)
        assert calls.put(of("again", "reset")).status == 200
        console.expect("virtpod guest: up", within_s=120, after=mark)
        assert "shutting down" not in console.seen[mark:]
        console.prompt(within_s=120)
        mark = len(console.seen)
        answer = calls.put(of("again", "softreboot"))
        assert answer.status == 200, answer.body
        console.expect("virtpod guest: up", within_s=120, after=mark)
        console.prompt(within_s=120)
        assert console.shell("echo alive").count("alive") >= 1
    after = space.vmi("again")
    assert (after["metadata"]["uid"], after["status"]["phase"]) == (uid, "Running")


def test_agent_answers(space: Space) -> None:
    """Guest information, users, filesystems; freeze and unfreeze; and without an agent a plain conflict."""
    space.boot(kernel_boot("agent"))
    calls = Subresources(space)
    with space.console("agent") as console:
        console.prompt(within_s=120)
    eventually(lambda: has_agent(space, "agent"), within_s=60, what="the agent is connected")
    info = calls.get(of("agent", "guestosinfo"))
    assert (info.status, info.document["kind"]) == (200, "VirtualMachineInstanceGuestAgentInfo")
    for sub, kind in (
        ("userlist", "VirtualMachineInstanceGuestOSUserList"),
        ("filesystemlist", "VirtualMachineInstanceFileSystemList"),
    ):
        answer = calls.get(of("agent", sub))
        assert answer.status == 200, answer.body
        assert answer.document["kind"] == kind
        assert isinstance(answer.document["items"], list)
    frozen_now = lambda: space.vmi("agent")["status"].get("fsFreezeStatus") == "frozen"  # noqa: E731
    for limit in ("30s", "0s"):
        frozen = calls.put(of("agent", "freeze"), {"unfreezeTimeout": limit})
        assert frozen.status == 200, frozen.body
        eventually(frozen_now, within_s=30, what="the VMI says that it is frozen")
        assert calls.put(of("agent", "unfreeze")).status == 200
        eventually(lambda: not frozen_now(), within_s=30, what="the VMI says that it is not frozen any more")
    assert calls.put(of("agent", "freeze"), {}).status == 400


def test_one_display_at_a_time(space: Space) -> None:
    """A second client takes over, unless it asks to preserve the session."""
    space.boot(kernel_boot("display"))
    calls = Subresources(space)

    async def meet() -> None:
        async with calls.connected(of("display", "vnc")) as first:
            assert (await receive(first, 12)).startswith(b"RFB 003.")
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with calls.connected(of("display", "vnc?preserveSession=true")):
                    pass
            assert refused.value.status == 503
            async with calls.connected(of("display", "vnc")) as second:
                assert (await receive(second, 12)).startswith(b"RFB 003.")
                ended = await first.receive(timeout=20)
                assert ended.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSING)

    asyncio.run(asyncio.wait_for(meet(), 60))


def test_what_cannot_be_plugged_into_a_running_vmi_is_refused(space: Space) -> None:
    """A dry run and what makes no sense change nothing; tests/e2e/test_hotplug_disks.py has what works."""
    space.boot(kernel_boot("volumes"))
    calls, before = Subresources(space), space.vmi("volumes")["spec"]
    source = {"persistentVolumeClaim": {"claimName": "data-claim"}}
    wish = {"name": "data", "disk": {"disk": {"bus": "scsi"}, "serial": "data"}, "volumeSource": source}
    assert calls.put(of("volumes", "addvolume"), {**wish, "dryRun": ["All"]}).status == 202
    for verb, body, words in (
        ("addvolume", {**wish, "disk": {"disk": {"bus": "sata"}}}, "scsi or virtio"),
        ("addvolume", {**wish, "disk": {"cdrom": {"bus": "sata"}}}, "must be a disk or a lun"),
        ("removevolume", {"name": "x"}, "does not exist"),
    ):
        answer = calls.put(of("volumes", verb), body)
        assert answer.status in (409, 422), answer.body
        assert words in answer.document["message"]
    assert space.vmi("volumes")["spec"] == before


def vm(name: str, strategy: str) -> dict[str, Any]:
    template = kernel_boot(name)
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": strategy, "template": {"spec": template["spec"]}},
    }


def test_vm_is_started_restarted_and_stopped(space: Space) -> None:
    """The verbs of a VM do what they say; what makes no sense now is a conflict; its ports are those of its VMI."""
    space.apply(vm("kept", "Manual"))
    calls, at = Subresources(space), "virtualmachines/kept/"
    assert calls.put(at + "stop").status == 409
    assert calls.put(at + "restart").status == 409
    assert calls.put(at + "start", {"dryRun": ["All"]}).status == 202
    assert calls.put(at + "start").status == 202
    eventually(lambda: space.vmi("kept"), within_s=30, what="the VMI of the VM")
    first = space.ready("kept")["metadata"]["uid"]
    assert calls.put(at + "start").status == 409
    with space.console("kept") as console:
        console.prompt(within_s=120)

    async def echo(socket: aiohttp.ClientWebSocketResponse) -> bytes:
        await socket.send_bytes(b"through the VM")
        return await receive(socket, 14)

    assert calls.talk(at + "portforward/7/tcp", echo) == b"through the VM"
    assert calls.put(at + "restart", {"gracePeriodSeconds": 0}).status == 202
    eventually(lambda: space.vmi("kept")["metadata"]["uid"] != first, within_s=90, what="another VMI")
    space.ready("kept")
    assert calls.put(at + "stop", {"gracePeriod": 0}).status == 202
    space.gone("vmi", within_s=90)
    assert calls.put(at + "stop").status == 409
    expanded = calls.get(at + "expand-spec")
    assert (expanded.status, expanded.document["metadata"]["name"]) == (200, "kept")


def test_volumes_change_the_vm(space: Space) -> None:
    """The template of the VM gets the volume and its disk, and loses them again."""
    space.apply(vm("shelf", "Halted"))
    calls, at = Subresources(space), "virtualmachines/shelf/"
    wish = {"name": "data", "disk": {"disk": {"bus": "scsi"}}, "volumeSource": {"dataVolume": {"name": "data-volume"}}}
    added = calls.put(at + "addvolume", wish)
    assert added.status == 202, added.body
    spec = space.engine.get("-n", space.namespace, "vm", "shelf")["spec"]["template"]["spec"]
    assert spec["volumes"] == [{"name": "data", "dataVolume": {"name": "data-volume", "hotpluggable": True}}]
    assert calls.put(at + "addvolume", wish).status == 409
    assert calls.put(at + "removevolume", {"name": "data"}).status == 202
    spec = space.engine.get("-n", space.namespace, "vm", "shelf")["spec"]["template"]["spec"]
    assert not spec.get("volumes")


def test_usb_devices_are_taken(space: Space) -> None:
    """QEMU greets in the language of USB redirection; four clients at most, the fifth is told so."""
    manifest = kernel_boot("usb")
    manifest["spec"]["domain"]["devices"]["clientPassthrough"] = {}
    space.boot(manifest)
    calls = Subresources(space)

    async def meet() -> None:
        async with AsyncExitStack() as stack:
            for _ in range(4):
                client = await stack.enter_async_context(calls.connected(of("usb", "usbredir")))
                assert await receive(client, 12), "no greeting"
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await stack.enter_async_context(calls.connected(of("usb", "usbredir")))
            assert refused.value.status == 503

    asyncio.run(asyncio.wait_for(meet(), 60))
