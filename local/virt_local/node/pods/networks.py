"""A running Pod whose annotation asks for other networks than it has gets them, and its other annotation tells so."""

from __future__ import annotations

from datetime import datetime, timedelta

from virt_core.apis import names
from virt_core.apis.pods import Pod
from virt_core.runtime.logs import get_logger
from virt_local.node.networks.vocabulary import NetworkError
from virt_local.node.pods.bundles import Parts
from virt_local.node.pods.state import PodState

log = get_logger(__name__)

RETRY = timedelta(seconds=5)


class NetworkFollower:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def follow(self, pod: Pod, state: PodState, now: datetime) -> None:
        """Only when the annotation has changed, or when something failed before."""
        asked = pod.metadata.annotations.get(names.ANNOTATION_NETWORKS, "")
        if pod.spec.host_network or (
            asked == state.networks_asked and (state.networks_at is None or now < state.networks_at)
        ):
            return
        told = state.networks_at is not None and asked == state.networks_asked
        state.networks_asked, state.networks_at = asked, None
        try:
            self._parts.sandboxes.networks.follow(pod)
        except NetworkError as error:
            state.networks_at = now + RETRY
            log.warning("a Pod cannot have its networks", pod=pod.metadata.name, error=str(error))
            if not told:
                self._parts.events.event(pod, "Warning", "FailedNetworkAttachment", str(error))

    def annotations(self, pod: Pod, state: PodState) -> dict[str, str] | None:
        """Those of the Pod with what it has now; None: it says so already."""
        if state.sandbox is None or not state.sandbox.attached or pod.spec.host_network:
            return None
        known, key = pod.metadata.annotations, names.ANNOTATION_NETWORK_STATUS
        if key not in known and not state.networks_asked:
            return None
        told = self._parts.sandboxes.networks.told(pod, state.sandbox.ips)
        if told == known.get(key, ""):
            return None
        rest = {name: value for name, value in known.items() if name != key}
        return rest | {key: told} if told else rest
