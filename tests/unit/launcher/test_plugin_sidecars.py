"""Whose sidecar it is that does not answer: the author's of the VMI, or that of a network binding plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

from virt_launcher.errors import InvalidVMIError
from virt_launcher.hooks.sidecars import FIELD, Sidecars
from virt_launcher.settings import Paths, Settings


@pytest.mark.parametrize(("plugins", "field"), [(0, FIELD), (1, "spec.domain.devices.interfaces")])
def test_the_field_says_who_asked_for_it(tmp_path: Path, plugins: int, field: str) -> None:
    settings = Settings(paths=Paths(hooks=tmp_path), hook_sidecars=1, plugin_sidecars=plugins)
    with pytest.raises(InvalidVMIError) as refused:
        Sidecars(settings, meet_s=0).begin()
    assert str(refused.value) == f"{field}: the sidecar hook-sidecar-0 has no socket after 0 s"
