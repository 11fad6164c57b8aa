"""All kinds the server serves at this moment: the built-in ones and those of the stored CRDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from virt_local.apiserver.builtins.table import BUILTIN_KINDS
from virt_local.apiserver.kinds import Kind


class Catalog:
    """Looked up by group, version and plural at every request; changed when a CRD is."""

    def __init__(self, builtin: Iterable[Kind] = BUILTIN_KINDS) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._custom: dict[str, list[Kind]] = {}
        self.revision = 0  # changes whenever discovery and OpenAPI must be made anew
        for kind in builtin:
            self._kinds[kind.group, kind.version, kind.plural] = kind

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        group, _, version = api_version.rpartition("/")
        found = (k for k in self._kinds.values() if (k.group, k.version, k.kind) == (group, version, kind))
        return next(found, None)

    def stored(self, storage: str) -> Kind | None:
        """A kind of the stored version, for work on records without a request."""
        found = [k for k in self._kinds.values() if k.storage == storage]
        return next((k for k in found if k.is_stored_form), found[0] if found else None)

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._kinds.values()))

    def is_custom(self, group: str) -> bool:
        """True for a group whose kinds all come from CRDs."""
        return all(kind.custom for kind in self._kinds.values() if kind.group == group)

    def versions(self, group: str) -> list[str]:
        """The served versions of a group, the preferred one first."""
        found = {kind.version for kind in self._kinds.values() if kind.group == group}
        return sorted(found, key=version_order, reverse=True)

    def groups(self) -> list[str]:
        """All groups, the core group first, the others in a stable order."""
        return sorted({kind.group for kind in self._kinds.values()})

    def of(self, group: str, version: str) -> list[Kind]:
        return [kind for kind in self._kinds.values() if (kind.group, kind.version) == (group, version)]

    def replace_custom(self, crd_name: str, kinds: list[Kind]) -> None:
        """Serves exactly these kinds for a CRD from now on; an empty list ends them."""
        for kind in self._custom.pop(crd_name, ()):
            self._kinds.pop((kind.group, kind.version, kind.plural), None)
        for kind in kinds:
            self._kinds[kind.group, kind.version, kind.plural] = kind
        if kinds:
            self._custom[crd_name] = kinds
        self.revision += 1

    def name_taken(self, crd_name: str, group: str, names: Iterable[str]) -> str:
        """A name of a kind, plural, singular or short form that another resource of the group already has."""
        wanted = set(names)
        for kind in self._kinds.values():
            if kind.group != group or f"{kind.plural}.{kind.group}" == crd_name:
                continue
            clash = wanted & {kind.kind, kind.plural, kind.singular, kind.list_kind, *kind.short_names}
            if clash:
                return min(clash)
        return ""


def version_order(version: str) -> tuple[int, int, int]:
    """v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > anything else."""
    for stage, rank in (("alpha", 1), ("beta", 2)):
        head, found, tail = version.partition(stage)
        if found and head[:1] == "v" and head[1:].isdigit() and tail.isdigit():
            return rank, int(head[1:]), int(tail)
    if version[:1] == "v" and version[1:].isdigit():
        return 3, int(version[1:]), 0
    return 0, 0, 0
