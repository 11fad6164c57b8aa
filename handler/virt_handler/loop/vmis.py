"""The VMIs that have a Pod on this node: those whose guest runs here, and those whose guest is to move here.

A label selector has no "or", so there is a watch for each label. They tell of a change one after the other: a VMI that
has left one selection and is not yet in the other is not gone. Nor is one that moved away while its former Pod still
ends here. So whoever is about to act on the absence of a VMI asks the API server first.
"""

from __future__ import annotations

from collections.abc import Callable

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.writes import version_of

LABELS = (names.LABEL_NODE_NAME, names.LABEL_MIGRATION_TARGET_NODE)


class NodeVmis:
    def __init__(self, client: KubeClient, node_name: str) -> None:
        self._client = client
        self.informers = tuple(
            Informer(client, VirtualMachineInstance, label_selector=f"{label}={node_name}") for label in LABELS
        )

    def on_change(self, handler: Callable[[VirtualMachineInstance], object]) -> None:
        """Called for each VMI that comes, changes or leaves one of the selections."""
        for informer in self.informers:
            informer.add_handler(handler, lambda _old, new: handler(new), handler)

    def has_synced(self) -> bool:
        return all(informer.has_synced() for informer in self.informers)

    def get(self, key: str) -> VirtualMachineInstance | None:
        """The newest that is known of it. None: neither label names this node."""
        found = [vmi for informer in self.informers if (vmi := informer.get(key)) is not None]
        return max(found, key=version_of, default=None)

    def ask(self, key: str) -> VirtualMachineInstance | None:
        """From the API server itself. None: there is no such VMI. Raises ApiError."""
        namespace, _, name = key.partition("/")
        try:
            return self._client.get(VirtualMachineInstance, name, namespace)
        except NotFound:
            return None
