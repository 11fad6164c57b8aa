"""How much virt-api's HTTPS port takes from whom."""

from __future__ import annotations

from dataclasses import dataclass

#: A review holds an object twice at most, and the API server stores none of more than 1.5 MiB.
REVIEW_BYTES = 4 << 20
#: What a VM can be, and still be stored.
OBJECT_BYTES = 3 << 19
#: The options of a verb.
OPTIONS_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    #: Together with all else that virt-api has open they stay below 1024 descriptors, the least that a process gets.
    connections: int = 768
    #: From one address. The rest is there for everybody else, also while that address does its worst.
    per_address: int = 640
    handshake_s: float = 10.0
    #: From the first byte of a request, or from the handshake, to the end of the headers.
    headers_s: float = 10.0
    header_bytes: int = 256 << 10
    #: From the end of the headers to that of the body.
    body_s: float = 10.0
    #: Between two requests. Longer than Go's clients keep a connection (90 s): they shall be the ones that close it.
    idle_s: float = 120.0
    #: For an answer that nobody reads.
    unread_s: float = 30.0
    #: For the rest of a body that was refused: its sender shall get to see the answer.
    rest_s: float = 2.0
    #: For the goodbye of TLS.
    goodbye_s: float = 3.0
    #: Of all requests together that are not answered yet.
    held_bytes: int = 64 << 20
