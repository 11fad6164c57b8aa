"""The questions that we ask a guest, as Ethernet frames, and what its frames say about who sent them. Pure.

A guest sends what it likes: what is read here is a few fields at fixed places, and a frame that is too short says
nothing.
"""

from __future__ import annotations

import ipaddress
import struct

from virt_netsetup.model import Value

ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
ASK_ARP, ASK_ND, ASK_ECHO = "arp", "nd", "echo"
_BROADCAST = b"\xff" * 6
_ICMP, _ICMPV6 = 1, 58
_ECHO4, _ECHO_REPLY4, _ECHO6, _ECHO_REPLY6, _SOLICIT, _ADVERT = 8, 0, 128, 129, 135, 136
#: Marks an echo as ours.
_MARK = 0x7670


class Question(Value, frozen=True):
    """Who has this address? Asked as `sender` at `mac`; an echo goes to `target`, the guest's MAC."""

    kind: str
    ip: str
    sender: str
    mac: str
    target: str = ""

    def frame(self) -> bytes:
        if self.kind == ASK_ARP:
            return _arp(self)
        return _solicitation(self) if self.kind == ASK_ND else _echo(self)


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _packed(ip: str) -> bytes:
    return ipaddress.ip_address(ip).packed


def _arp(question: Question) -> bytes:
    own = mac_bytes(question.mac)
    body = struct.pack("!HHBBH", 1, IPV4, 6, 4, 1) + own + _packed(question.sender) + bytes(6) + _packed(question.ip)
    return _BROADCAST + own + struct.pack("!H", ARP) + body


def _solicitation(question: Question) -> bytes:
    """To the group of those whose address ends like this one."""
    asked, own = _packed(question.ip), mac_bytes(question.mac)
    group = _packed("ff02::1:ff00:0")[:13] + asked[13:]
    message = struct.pack("!BBHI", _SOLICIT, 0, 0, 0) + asked + b"\x01\x01" + own
    return b"\x33\x33" + group[12:] + own + struct.pack("!H", IPV6) + _ipv6(question.sender, group, message)


def _echo(question: Question) -> bytes:
    head = mac_bytes(question.target) + mac_bytes(question.mac)
    asked = _packed(question.ip)
    if len(asked) == 16:
        message = struct.pack("!BBHHH", _ECHO6, 0, 0, _MARK, 1)
        return head + struct.pack("!H", IPV6) + _ipv6(question.sender, asked, message)
    message = struct.pack("!BBHHH", _ECHO4, 0, 0, _MARK, 1)
    message = message[:2] + struct.pack("!H", _checksum(message)) + message[4:]
    sender = _packed(question.sender)
    packet = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(message), 0, 0, 64, _ICMP, 0) + sender + asked
    packet = packet[:10] + struct.pack("!H", _checksum(packet)) + packet[12:]
    return head + struct.pack("!H", IPV4) + packet + message


def _ipv6(sender: str, target: bytes, message: bytes) -> bytes:
    source = _packed(sender)
    pseudo = source + target + struct.pack("!II", len(message), _ICMPV6)
    message = message[:2] + struct.pack("!H", _checksum(pseudo + message)) + message[4:]
    return struct.pack("!IHBB", 6 << 28, len(message), _ICMPV6, 255) + source + target + message


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Heard(Value, frozen=True):
    """A frame of a guest: whose MAC and address it gives as its sender's, and which question it answers, if any."""

    mac: str
    sender: str = ""
    answers: tuple[str, str] = ("", "")


def heard(frame: bytes) -> Heard | None:
    """Nothing for what is no frame at all."""
    if len(frame) < 14:
        return None
    mac, kind, body = frame[6:12].hex(":"), int.from_bytes(frame[12:14]), frame[14:]
    if kind == ARP and len(body) >= 28:
        sender = _ip(body[14:18])
        return Heard(body[8:14].hex(":"), sender, (ASK_ARP, sender) if body[6:8] == b"\x00\x02" else ("", ""))
    if kind == IPV4 and len(body) >= 20:
        return Heard(mac, _ip(body[12:16]), _answer4(body))
    if kind == IPV6 and len(body) >= 40:
        return Heard(mac, _ip(body[8:24]), _answer6(body))
    return Heard(mac)


def _answer4(packet: bytes) -> tuple[str, str]:
    start = (packet[0] & 0xF) * 4
    message = packet[start : start + 6]
    is_reply = packet[9] == _ICMP and message[:1] == bytes([_ECHO_REPLY4]) and message[4:6] == struct.pack("!H", _MARK)
    return (ASK_ECHO, _ip(packet[12:16])) if is_reply else ("", "")


def _answer6(packet: bytes) -> tuple[str, str]:
    message = packet[40:64]
    if packet[6] != _ICMPV6 or len(message) < 8:
        return "", ""
    if message[0] == _ADVERT and len(message) == 24:
        return ASK_ND, _ip(message[8:24])
    is_reply = message[0] == _ECHO_REPLY6 and message[4:6] == struct.pack("!H", _MARK)
    return (ASK_ECHO, _ip(packet[8:24])) if is_reply else ("", "")


def _ip(data: bytes) -> str:
    return str(ipaddress.ip_address(data))
