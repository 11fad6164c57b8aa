"""Forgets what the kernel remembers of datagrams to a Pod that no longer answers for a Service."""

from __future__ import annotations

from virt_core.runtime.logs import get_logger
from virt_local.up import links
from virt_local.up.errors import NetworkError

log = get_logger("virt-local.services")


def end(netns: str, addresses: set[str]) -> None:
    """A flow that stays ends by itself half a minute after its last packet, so a failure here is told and no more."""
    try:
        links.forget_datagrams(netns, addresses)
    except NetworkError as error:
        log.warning("old flows could not be ended", where=netns or "the machine", error=str(error))
