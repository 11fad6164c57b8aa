"""What the networks of a node are spoken of with."""

from __future__ import annotations

CNI_VERSION = "1.0.0"


class NetworkError(RuntimeError):
    """A Pod cannot have a network; the text says why, in a plugin's words if one failed."""
