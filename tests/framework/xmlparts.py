"""Whether an XML text still says what another one says: more may be in it, in another order, but nothing less."""

from __future__ import annotations

from xml.etree import ElementTree


def lost(ours: str, theirs: str) -> list[str]:
    """Elements of ours that are not among theirs, with at least the attributes and the text that ours have."""
    return _lost(ElementTree.fromstring(ours), ElementTree.fromstring(theirs), "")


def _lost(ours: ElementTree.Element, theirs: ElementTree.Element, path: str) -> list[str]:
    left, missing = list(theirs), []
    for child in ours:
        here = f"{path}/{child.tag}"
        fits = {other: _lost(child, other, here) for other in left if _fits(child, other)}
        if not fits:
            missing.append(f"{here} {child.attrib}")
            continue
        best = min(fits, key=lambda other: len(fits[other]))
        missing += fits[best]
        left.remove(best)
    return missing


def _fits(ours: ElementTree.Element, theirs: ElementTree.Element) -> bool:
    same = ours.tag == theirs.tag and all(theirs.get(key) == value for key, value in ours.attrib.items())
    return same and (not (ours.text or "").strip() or ours.text == theirs.text)
