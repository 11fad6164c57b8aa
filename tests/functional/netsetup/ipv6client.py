"""A guest that has IPv6 only, as far as it needs to be one: asks for a router and, by DHCPv6, for an address."""

from __future__ import annotations

import ipaddress
import json
import struct
from typing import Any

from .lab import Lab, run

#: Asks and prints what it was answered, as hex: the advertisement, then the answer of DHCPv6.
CLIENT = """
import json, socket, struct, sys, time
link = socket.if_nametoindex("eth0")
mac = bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
duid = struct.pack("!HH6s", 3, 1, mac)

def option(code, data):
    return struct.pack("!HH", code, len(data)) + data

def asked(make, send, heard, tries=8):
    for _ in range(tries):
        try:
            send()
            while True:
                data, peer = make.recvfrom(4096)
                if heard(data):
                    return data, peer[0]
        except (TimeoutError, OSError):
            time.sleep(0.5)
    sys.exit("nobody answered")

raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
raw.settimeout(2)
raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
solicit = struct.pack("!BBHI", 133, 0, 0, 0) + b"\\1\\1" + mac
advert, router = asked(raw, lambda: raw.sendto(solicit, ("ff02::2", 0, 0, link)), lambda data: data[0] == 134)

udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.settimeout(2)
udp.bind(("::", 546, 0, link))
everybody = ("ff02::1:2", 547, 0, link)
identity = option(1, duid) + option(8, b"\\0\\0") + option(6, struct.pack("!HH", 23, 24))
address = option(3, struct.pack("!III", 7, 0, 0))

def message(kind, body):
    return bytes([kind]) + b"abc" + identity + body

offer, _ = asked(udp, lambda: udp.sendto(message(1, address), everybody), lambda data: data[0] == 2)
given, rest = {}, offer[4:]
while rest:
    code, length = struct.unpack("!HH", rest[:4])
    given[code], rest = rest[4:4 + length], rest[4 + length:]
request = message(3, option(2, given[2]) + option(3, given[3]))
reply, _ = asked(udp, lambda: udp.sendto(request, everybody), lambda data: data[0] == 7)
print(json.dumps({"router": router, "advert": advert.hex(), "reply": reply.hex()}))
"""


def options(data: bytes) -> dict[int, bytes]:
    """Those of DHCPv6."""
    found = {}
    while data:
        code, length = struct.unpack("!HH", data[:4])
        found[code], data = data[4 : 4 + length], data[4 + length :]
    return found


def advertised(data: bytes) -> dict[int, bytes]:
    """The options of an advertisement, which count in units of eight bytes."""
    found, rest = {}, data[16:]
    while rest:
        found[rest[0]], rest = rest[2 : rest[1] * 8], rest[rest[1] * 8 :]
    return found


def ask(lab: Lab) -> dict[str, Any]:
    """What the guest was told, in words."""
    import sys

    done = run("ip", "netns", "exec", lab.guest, sys.executable, "-c", CLIENT)
    told = json.loads(done.stdout)
    advert, reply = bytes.fromhex(told["advert"]), options(bytes.fromhex(told["reply"])[4:])
    link = advertised(advert)
    lease = options(reply[3][12:])[5]
    return {
        "router": told["router"].partition("%")[0],
        "router lifetime": struct.unpack("!H", advert[6:8])[0],
        "managed": bool(advert[5] & 0x80),
        "mtu": struct.unpack("!I", link[5][2:6])[0],
        "advertised dns": _addresses(link[25][6:]) if 25 in link else [],
        "address": str(ipaddress.IPv6Address(lease[:16])),
        "lifetime": struct.unpack("!I", lease[20:24])[0],
        "dns": _addresses(reply[23]) if 23 in reply else [],
        "search": _domains(reply[24]) if 24 in reply else [],
    }


def _addresses(data: bytes) -> list[str]:
    return [str(ipaddress.IPv6Address(data[start : start + 16])) for start in range(0, len(data), 16)]


def _domains(data: bytes) -> list[str]:
    names, labels = [], []
    while data:
        length, data = data[0], data[1:]
        if not length:
            names.append(".".join(labels))
            labels = []
        else:
            labels.append(data[:length].decode())
            data = data[length:]
    return names
