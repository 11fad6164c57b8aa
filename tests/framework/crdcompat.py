"""Whether objects and clients of an older release still fit a CRD: what was accepted then is accepted now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

#: Limits that may only become wider: the key, and whether a larger value is the wider one.
_LIMITS = {
    "minimum": False,
    "minLength": False,
    "minItems": False,
    "minProperties": False,
    "maximum": True,
    "maxLength": True,
    "maxItems": True,
    "maxProperties": True,
}
#: What must stay exactly as it is: a change would read, merge or default stored objects in another way.
_FIXED = ("type", "default", "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-list-map-keys")
#: Permissions that may be given but not taken away.
_GRANTED = ("nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")
#: Restrictions that may be dropped but neither added nor changed.
_RESTRICTIONS = ("format", "pattern", "multipleOf", "not", "allOf", "anyOf", "oneOf", "uniqueItems", "exclusiveMinimum")


def without_descriptions(node: Any) -> Any:
    """A schema without words, in which a property may well be called `description`."""
    if isinstance(node, list):
        return [without_descriptions(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: without_descriptions(each) for name, each in value.items()}
        if key == "properties"
        else without_descriptions(value)
        for key, value in node.items()
        if key == "properties" or not (key == "description" and isinstance(value, str))
    }


def summary(crd: dict[str, Any]) -> dict[str, Any]:
    """What of a CRD other people rely on."""
    spec = crd["spec"]
    names = {key: spec["names"].get(key) for key in ("kind", "plural", "singular", "shortNames", "listKind")}
    versions = {
        version["name"]: {
            "served": version["served"],
            "storage": version["storage"],
            "subresources": version.get("subresources", {}),
            "schema": without_descriptions(version["schema"]["openAPIV3Schema"]),
        }
        for version in spec["versions"]
    }
    return {"group": spec["group"], "scope": spec["scope"], "names": names, "versions": versions}


def broken(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """`summary` of both; what would break, each as a sentence."""
    return list(_broken(old, new))


def _broken(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in ("group", "scope"):
        if old[key] != new[key]:
            yield f"{key} was {old[key]} and is {new[key]}"
    yield from _names(old["names"], new["names"])
    for version, before in old["versions"].items():
        after = new["versions"].get(version)
        if after is None or (before["served"] and not after["served"]):
            yield f"version {version} is not served any more"
            continue
        for subresource in before["subresources"].keys() - after["subresources"].keys():
            yield f"{version}: the subresource {subresource} is gone"
        yield from _schema(version, before["schema"], after["schema"])


def _names(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in ("kind", "plural", "singular", "listKind"):
        if old[key] != new[key]:
            yield f"{key} was {old[key]} and is {new[key]}"
    for short in set(old["shortNames"] or []) - set(new["shortNames"] or []):
        yield f"the short name {short} is gone"


def _schema(path: str, old: Schema, new: Schema) -> Iterator[str]:
    yield from _own(path, old, new)
    # Where anything goes, what was listed need not be.
    anything = bool(new.get("x-kubernetes-preserve-unknown-fields")) and "properties" not in new
    for name, before in old.get("properties", {}).items():
        after = new.get("properties", {}).get(name)
        if after is not None:
            yield from _schema(f"{path}.{name}", before, after)
        elif not anything:
            yield f"{path}.{name} is gone"
    for key in ("items", "additionalProperties"):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _schema(f"{path}[{'' if key == 'items' else '*'}]", before, after)
        elif before != after and before not in (None, False):
            yield f"{path}: {key} was {before} and is {after}"


def _own(path: str, old: Schema, new: Schema) -> Iterator[str]:
    for key in _FIXED:
        if old.get(key) != new.get(key):
            yield f"{path}: {key} was {old.get(key)} and is {new.get(key)}"
    for key in _GRANTED:
        if old.get(key) and not new.get(key):
            yield f"{path}: {key} is not granted any more"
    for key in _RESTRICTIONS:
        if key in new and old.get(key) != new[key]:
            yield f"{path}: {key} was {old.get(key)} and is {new[key]}"
    for name in set(new.get("required", [])) - set(old.get("required", [])):
        yield f"{path}.{name} is required now"
    yield from _ranges(path, old, new)
    yield from _rules(path, old, new)


def _ranges(path: str, old: Schema, new: Schema) -> Iterator[str]:
    for key, larger_is_wider in _LIMITS.items():
        before, after = old.get(key), new.get(key)
        if after is not None and (before is None or (after < before if larger_is_wider else after > before)):
            yield f"{path}: {key} was {before} and is {after}"
    if "enum" in new and ("enum" not in old or set(old["enum"]) - set(new["enum"])):
        yield f"{path}: enum was {old.get('enum')} and is {new['enum']}"


def _rules(path: str, old: Schema, new: Schema) -> Iterator[str]:
    known = {rule["rule"] for rule in old.get("x-kubernetes-validations", [])}
    for rule in new.get("x-kubernetes-validations", []):
        if rule["rule"] not in known:
            yield f"{path}: a new validation: {rule['rule']}"
