"""The table of features as if all were built: for tests of what lies behind the door."""

from __future__ import annotations

from msgspec.structs import replace

from virt_core.apis.gates import enabled_gates
from virt_core.apis.support.feature import ABSENT, WORKS
from virt_core.apis.support.table import FEATURES, Support

COMPLETE = Support(tuple(replace(f, state=WORKS) if f.state in ABSENT else f for f in FEATURES))
#: The gates of a cluster that lists none, if each gate stood for something.
ALL_GATES = enabled_gates(missing=frozenset())
