"""The frames that we ask a guest with, and what is read out of a guest's: whatever it sends."""

from __future__ import annotations

import random

import pytest

from virt_netsetup.frames import ASK_ARP, ASK_ECHO, ASK_ND, Heard, Question, heard, mac_bytes

BRIDGE, GUEST = "02:00:00:00:00:00", "02:11:22:33:44:55"


def turned(frame: bytes) -> bytes:
    """The same, from the guest to us."""
    return mac_bytes(BRIDGE) + mac_bytes(GUEST) + frame[12:]


def test_an_arp_request_and_its_reply() -> None:
    frame = Question(ASK_ARP, "10.0.2.2", "10.0.2.1", BRIDGE).frame()
    assert frame[:6] == b"\xff" * 6
    assert heard(frame) == Heard(BRIDGE, "10.0.2.1")
    body = (
        frame[14:20] + b"\x00\x02" + mac_bytes(GUEST) + bytes([10, 0, 2, 2]) + mac_bytes(BRIDGE) + bytes([10, 0, 2, 1])
    )
    assert heard(turned(frame[:14] + body)) == Heard(GUEST, "10.0.2.2", (ASK_ARP, "10.0.2.2"))


def test_a_solicitation_goes_to_those_with_such_an_end_of_their_address() -> None:
    frame = Question(ASK_ND, "fd10:0:2::12:3456", "fe80::ff:fe00:0", BRIDGE).frame()
    assert frame[:6].hex() == "3333ff123456"
    assert frame[38:54].hex() == "ff0200000000000000000001ff123456"
    assert frame[21] == 255, "with fewer hops left it is not taken"
    reply = frame[:54] + bytes([136, 0, 0, 0, 0x60, 0, 0, 0]) + frame[62:78]
    assert heard(turned(reply)) == Heard(GUEST, "fe80::ff:fe00:0", (ASK_ND, "fd10:0:2::12:3456"))


@pytest.mark.parametrize(
    ("ip", "sender", "place", "kind"), [("10.0.2.2", "10.0.2.1", 34, 0), ("fd10:0:2::2", "fd10:0:2::1", 54, 129)]
)
def test_an_echo_is_known_by_its_mark(ip: str, sender: str, place: int, kind: int) -> None:
    frame = Question(ASK_ECHO, ip, sender, BRIDGE, GUEST).frame()
    assert frame[:6] == mac_bytes(GUEST)
    assert heard(frame) == Heard(BRIDGE, sender), "a request is no reply"
    reply = bytearray(turned(frame))
    reply[place] = kind
    assert heard(bytes(reply)) == Heard(GUEST, sender, (ASK_ECHO, sender))
    reply[place + 4] ^= 1
    assert heard(bytes(reply)) == Heard(GUEST, sender), "somebody else's"


def test_nothing_that_a_guest_sends_breaks_it() -> None:
    whole = [
        Question(kind, ip, sender, BRIDGE, GUEST).frame()
        for kind, ip, sender in (
            (ASK_ARP, "10.0.2.2", "10.0.2.1"),
            (ASK_ND, "fd10::2", "fe80::1"),
            (ASK_ECHO, "10.0.2.2", "10.0.2.1"),
            (ASK_ECHO, "fd10::2", "fd10::1"),
        )
    ]
    chance = random.Random(44)
    for frame in whole:
        for length in range(len(frame)):
            heard(frame[:length])
        for _ in range(300):
            broken = bytearray(frame)
            broken[chance.randrange(12, len(frame))] = chance.randrange(256)
            found = heard(bytes(broken))
            assert found is not None
            assert len(found.mac) == 17
    assert heard(b"") is None
