"""Admission by the configuration as it is now.

The checks are made for one snapshot of the configuration. When that changes they are made anew, so that one review
never sees two states of it and no check has to ask twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from virt_api.admission.causes import Denied
from virt_api.admission.review import Admitter
from virt_core.apis.admission import AdmissionRequest
from virt_core.kube.configvalues import ClusterConfig

Make = Callable[[ClusterConfig], dict[str, Admitter]]


class LiveAdmitters:
    """Safe in any thread: two that see a change at once both make the checks, and one of them stays."""

    def __init__(
        self, make: Make, current: Callable[[], ClusterConfig], ready: Callable[[], bool] = lambda: True
    ) -> None:
        self._make, self._current, self._ready = make, current, ready
        self._made = (config := current(), make(config))

    def by_path(self) -> dict[str, Admitter]:
        """An admitter for each path, which follows the configuration."""
        return {path: partial(self._admit, path) for path in self._made[1]}

    def _admit(self, path: str, request: AdmissionRequest) -> Any:
        if not self._ready():
            # Better no answer for a moment than defaults that the cluster has overruled.
            raise Denied("virt-api has not read the configuration yet; try again", 503, "ServiceUnavailable")
        config, (made_for, admitters) = self._current(), self._made
        if config is not made_for:
            admitters = self._make(config)
            self._made = (config, admitters)
        return admitters[path](request)
