"""Makes `framework` and `contract` importable from everywhere in the tests, and leaves out what nobody asked for.

Behind everything else on the path, not before it: a folder of tests must not hide a library of the same name.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The whole matrix of accidents takes long: who wants it says so by its mark. And a short run asks one engine."""
    from tests.e2e.kubernetes import wanted
    from tests.e2e.lanes import asked_for, is_left_out

    short, faults, on_cluster = asked_for(), "faults" in config.option.markexpr, wanted()
    left_out = [
        item
        for item in items
        if (not faults and item.get_closest_marker("faults") is not None)
        or is_left_out(item.path, short=short, on_cluster=on_cluster)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
