"""What a row of the table of supported features is."""

from __future__ import annotations

import msgspec

WORKS = "works"
GATED = "gated"  #: Works where the cluster's configuration switches its feature gate on.
NOT_YET = "not yet"
NEVER = "never, by decision"  #: Others have it; we do it in another way, which the note names, or not at all.
#: States in which nobody gets the feature.
ABSENT = (NOT_YET, NEVER)


class Feature(msgspec.Struct, frozen=True):
    """One feature of the API. `what` is a noun phrase that `is not built` can follow; it is also the row's name.

    A field is a path below the spec of a VMI (`fields`) or of a VM (`vm_fields`): `[]` stands for every entry of a
    list, and `=a|b` at the end means that only these values ask for the feature. Annotations may end so too.
    """

    what: str
    state: str
    area: str  #: To which part it belongs, and with which it comes while it is not built.
    note: str = ""  #: How far it works, or what to do instead: the second half of the sentence that refuses it.
    fields: tuple[str, ...] = ()
    vm_fields: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    in_launcher: bool = True  #: Whether virt-launcher refuses its fields too. Not where only the Pod lacks something.

    @property
    def refusal(self) -> str:
        """The sentence for somebody who asks for it."""
        when = "by decision" if self.state == NEVER else "yet"
        return f"{self.what} is not built {when}" + (f"; {self.note}" if self.note else "")


def row(area: str, state: str, what: str, note: str = "", *, in_launcher: bool = True, **places: str) -> Feature:
    """A row as the tables write it: places are words with blanks between them."""
    split = {place: tuple(words.split()) for place, words in places.items()}
    return Feature(what, state, area, note, in_launcher=in_launcher, **split)
