"""What the silence of a launcher means that is alive. Pure."""

from __future__ import annotations

from enum import Enum

DOUBT_AFTER_S = 30.0
LOST_AFTER_S = 60.0


class Verdict(Enum):
    FINE = "fine"
    DOUBTFUL = "doubtful"
    LOST = "lost"
