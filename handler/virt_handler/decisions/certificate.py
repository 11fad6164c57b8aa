"""When a node asks for a new certificate. Pure."""

from __future__ import annotations

from datetime import datetime

from virt_core.runtime.certfacts import BACKDATE, Facts

#: How much of its life a certificate is used before the next one is asked for.
_USED = 2 / 3


def renewal(shown: Facts, signer: Facts) -> datetime:
    """In good time before its end; at once when another authority signs now, for the old one is about to be forgotten.

    Each authority has a name of its own, so the names tell them apart.
    """
    if shown.issuer != signer.subject:
        return shown.begins
    made = shown.begins + BACKDATE
    return made + (shown.ends - made) * _USED
