"""Questions to the table of supported features. Pure; made once, asked often."""

from __future__ import annotations

from typing import TypeAlias

from virt_core.apis.support import cluster, machine
from virt_core.apis.support.feature import ABSENT, Feature
from virt_core.apis.support.paths import Paths

FEATURES = machine.FEATURES + cluster.FEATURES

#: Where a document asks for a feature that is not built.
Missing: TypeAlias = tuple[str, Feature]


class Support:
    def __init__(self, features: tuple[Feature, ...]) -> None:
        self.features = features
        self.missing = [feature for feature in features if feature.state in ABSENT]
        self._names = {feature.what: feature for feature in self.missing}
        self._machine = Paths([(path, feature) for feature in self.missing for path in feature.fields])
        self._vm = Paths([(path, feature) for feature in self.missing for path in feature.vm_fields])
        self._annotations = [(text, feature) for feature in self.missing for text in feature.annotations]
        self._kinds = {kind: feature for feature in self.missing for kind in feature.kinds}
        self.subresources = {name: feature for feature in self.missing for name in feature.subresources}
        built = {gate for feature in features if feature.state not in ABSENT for gate in feature.gates}
        #: Gates behind which there is nothing: they are off, whatever the cluster's configuration says.
        self.missing_gates = frozenset(gate for feature in self.missing for gate in feature.gates) - built

    def is_built(self, what: str) -> bool:
        return what not in self._names

    def refusal(self, what: str) -> str:
        """Why a feature that is not built cannot be had."""
        return self._names[what].refusal

    def kind(self, kind: str) -> Feature | None:
        """The feature without which objects of this kind would lie there for ever."""
        return self._kinds.get(kind)

    def of_machine(self, spec: object, path: str = "spec") -> list[Missing]:
        """What a VMI's spec, as plain JSON, asks for and cannot have."""
        return self._machine.asked(spec, path)

    def of_vm(self, spec: object, path: str = "spec") -> list[Missing]:
        """What a VM's spec asks for beside its machine."""
        return self._vm.asked(spec, path)

    def of_metadata(self, metadata: object, path: str = "metadata") -> list[Missing]:
        """What annotations ask for."""
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if not isinstance(annotations, dict):
            return []
        wanted = ((*text.partition("=")[::2], feature) for text, feature in self._annotations)
        return [
            (f"{path}.annotations[{name}]", feature)
            for name, value, feature in wanted
            if name in annotations and value in ("", annotations[name])
        ]


TODAY = Support(FEATURES)
