"""Ethernet frames as a guest may send them, honest or not. Only what is looked at on the way is filled in."""

from __future__ import annotations

import ipaddress
import struct

BROADCAST = "ff:ff:ff:ff:ff:ff"
ARP_REQUEST, ARP_REPLY = 1, 2
ROUTER_ADVERT, SOLICIT, ADVERT, REDIRECT, MLD_REPORT = 134, 135, 136, 137, 143
TCP, UDP, ICMPV6, FRAGMENT, DESTINATION_OPTIONS = 6, 17, 58, 44, 60


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def ethernet(source: str, target: str, kind: int, payload: bytes) -> bytes:
    return mac_bytes(target) + mac_bytes(source) + struct.pack("!H", kind) + payload


def tagged(frame: bytes, vlan: int) -> bytes:
    return frame[:12] + struct.pack("!HH", 0x8100, vlan) + frame[12:]


def arp(source: str, operation: int, mac: str, address: str, asked: str) -> bytes:
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + mac_bytes(mac) + packed(address)
    return ethernet(source, BROADCAST, 0x0806, body + bytes(6) + packed(asked))


def rarp(source: str) -> bytes:
    """How QEMU announces a machine that has moved."""
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 3) + mac_bytes(source) + bytes(4) + mac_bytes(source) + bytes(4)
    return ethernet(source, BROADCAST, 0x8035, body)


def udp(source_port: int, target_port: int, data: bytes) -> bytes:
    return struct.pack("!HHHH", source_port, target_port, 8 + len(data), 0) + data


def ipv4(source: str, target: str, payload: bytes, protocol: int = UDP) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0)
    head += packed(source) + packed(target)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv6(source: str, target: str, payload: bytes, following: int = UDP) -> bytes:
    return struct.pack("!IHBB", 6 << 28, len(payload), following, 255) + packed(source) + packed(target) + payload


def neighbour(kind: int, target: str) -> bytes:
    """A solicitation or an advertisement of `target`."""
    return struct.pack("!BBHI", kind, 0, 0, 0) + packed(target)


def hidden_in_fragment(message: bytes) -> bytes:
    """The first piece of a packet whose real header comes only with the second; follows a FRAGMENT header."""
    return struct.pack("!BBHI", DESTINATION_OPTIONS, 0, 1, 7) + struct.pack("!BB6x", ICMPV6, 0) + message[:0]
