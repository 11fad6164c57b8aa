"""What another server offers, in the words of our own discovery: APIResourceList in, APIGroupDiscovery out."""

from __future__ import annotations

from virt_local.apiserver.hooks import Object


def group_discovery(group: str, versions: dict[str, Object]) -> Object:
    """One entry for a group; `versions` maps each version, best first, to its APIResourceList."""
    entries = [
        {"version": version, "resources": _resources(listed), "freshness": "Current"}
        for version, listed in versions.items()
    ]
    return {"metadata": {"name": group}, "versions": entries}


def _resources(listed: Object) -> list[Object]:
    found: dict[str, Object] = {}
    for entry in listed.get("resources") or ():
        name, _, subresource = entry["name"].partition("/")
        scope = "Namespaced" if entry.get("namespaced") else "Cluster"
        # A subresource may come without the resource that it belongs to.
        parent = found.setdefault(name, {"resource": name, "responseKind": _no_kind(), "scope": scope, "verbs": []})
        kind = {"group": entry.get("group", ""), "version": entry.get("version", ""), "kind": entry.get("kind", "")}
        if subresource:
            known = {"subresource": subresource, "responseKind": kind, "verbs": entry.get("verbs") or []}
            parent.setdefault("subresources", []).append(known)
        else:
            parent |= _main(entry, kind, scope)
            found[name] = parent
    return list(found.values())


def _main(entry: Object, kind: Object, scope: str) -> Object:
    described: Object = {"responseKind": kind, "scope": scope, "verbs": entry.get("verbs") or []}
    described["singularResource"] = entry.get("singularName", "")
    for key in ("shortNames", "categories"):
        if entry.get(key):
            described[key] = entry[key]
    return described


def _no_kind() -> Object:
    return {"group": "", "version": "", "kind": ""}
