"""Every target."""

from __future__ import annotations

from fuzz.target import Target
from fuzz.targets import (
    agents,
    answers,
    commands,
    domains,
    images,
    layers,
    localapi,
    netplans,
    notify,
    screens,
    subresources,
    texts,
    webhooks,
)

_MODULES = (
    webhooks,
    subresources,
    notify,
    answers,
    commands,
    agents,
    images,
    screens,
    domains,
    netplans,
    localapi,
    layers,
    texts,
)
TARGETS: dict[str, Target] = {module.TARGET.name: module.TARGET for module in _MODULES}
