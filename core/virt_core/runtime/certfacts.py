"""What of a certificate matters to those who only hold one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

#: Certificates begin this much before they are made: a peer whose clock is behind believes them too.
BACKDATE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Facts:
    """Names are their DER bytes, good to compare."""

    issuer: bytes
    subject: bytes
    begins: datetime
    ends: datetime
