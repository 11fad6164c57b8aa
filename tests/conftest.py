"""Makes `framework` and `contract` importable from everywhere in the tests, and leaves out what nobody asked for.

Behind everything else on the path, not before it: a folder of tests must not hide a library of the same name.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The whole matrix of accidents takes long: who wants it says so by its mark."""
    if "faults" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("faults") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
