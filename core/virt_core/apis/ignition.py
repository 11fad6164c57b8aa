"""The data of Ignition: what may stand in the annotation that carries it."""

from __future__ import annotations

import msgspec

#: As much as the annotations of an object may have in all.
MOST_BYTES = 256 << 10


def fault_of(text: str) -> str | None:
    """What is wrong with it; None: nothing. What is in it beyond that is between Ignition and its user."""
    if (size := len(text.encode(errors="surrogatepass"))) > MOST_BYTES:
        return f"has {size} bytes; at most {MOST_BYTES} are allowed"
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return f"must be JSON: {error}"
    about = found.get("ignition") if isinstance(found, dict) else None
    version = about.get("version") if isinstance(about, dict) else None
    if not isinstance(version, str) or not version:
        return "must be a JSON object whose ignition.version is the version of the format"
    return None
