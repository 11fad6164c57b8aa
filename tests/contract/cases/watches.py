"""Watches: what comes, in which order, and what ends them."""

from __future__ import annotations

from contract.cases.lists import gadget
from contract.table import case
from contract.talk import GADGETS, MAPS, PARTIAL, TABLE, Talk


def _config(name: str, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"mine": "yes", **labels}}}


@case()
def changes(t: Talk) -> None:
    start = t.send("GET", MAPS).revision
    with t.watching(MAPS, f"&resourceVersion={start}&labelSelector=mine") as watching:
        t.given(MAPS, _config("a"))
        t.send("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}, content_type="application/merge-patch+json")
        t.send("DELETE", f"{MAPS}/a")
        watching.expect(3)


@case()
def changes_that_were_before(t: Talk) -> None:
    start = t.send("GET", GADGETS).revision
    t.given(GADGETS, gadget("a"))
    t.send("PATCH", f"{GADGETS}/a", {"spec": {"size": 2}}, content_type="application/merge-patch+json")
    t.send("DELETE", f"{GADGETS}/a")
    t.watch(GADGETS, f"&resourceVersion={start}", 3)


@case()
def into_and_out_of_a_selection(t: Talk) -> None:
    start = t.send("GET", MAPS).revision
    t.given(MAPS, _config("a", on="no"))
    for value in ("yes", "yes2", "no", "yes"):
        body = {"metadata": {"labels": {"on": value}}}
        t.send("PATCH", f"{MAPS}/a", body, content_type="application/merge-patch+json")
    t.send("DELETE", f"{MAPS}/a")
    t.watch(MAPS, f"&resourceVersion={start}&labelSelector=on+in+(yes,yes2)", 5)


@case()
def one_object_by_its_name(t: Talk) -> None:
    start = t.send("GET", MAPS).revision
    t.given(MAPS, _config("a"))
    t.given(MAPS, _config("b"))
    t.send("DELETE", f"{MAPS}/b")
    t.watch(MAPS, f"&resourceVersion={start}&fieldSelector=metadata.name%3Db", 2)


@case()
def from_the_present(t: Talk) -> None:
    """Without a revision, or with 0, what is there comes first."""
    t.given(GADGETS, gadget("a"))
    t.given(GADGETS, gadget("b"))
    t.watch(GADGETS, "", 2)
    t.watch(GADGETS, "&resourceVersion=0", 2)


@case()
def initial_events(t: Talk) -> None:
    t.given(GADGETS, gadget("a"))
    query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with t.watching(GADGETS, query) as watching:
        watching.expect(2)
        t.given(GADGETS, gadget("b"))
        watching.expect(1)


@case()
def initial_events_of_nothing(t: Talk) -> None:
    query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    t.watch(GADGETS, query + "&resourceVersion=0", 1)
    t.watch(GADGETS, query, 1, accept=PARTIAL)
    t.watch(GADGETS, query, 1, accept=TABLE, bookmarks=True)


@case()
def initial_events_asked_for_wrongly(t: Talk) -> None:
    t.get(f"{GADGETS}?watch=1&sendInitialEvents=true")
    t.get(f"{GADGETS}?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact")
    t.get(f"{GADGETS}?watch=1&resourceVersionMatch=NotOlderThan")
    t.get(f"{GADGETS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1")


@case()
def a_forgotten_revision(t: Talk) -> None:
    t.watch(MAPS, "&resourceVersion=1", 1)


@case()
def bad_questions(t: Talk) -> None:
    t.get(f"{MAPS}?watch=1&resourceVersion=abc")
    t.get(f"{MAPS}?watch=1&fieldSelector=data.k%3Dv")


@case()
def as_metadata(t: Talk) -> None:
    t.given(GADGETS, gadget("a"))
    t.watch(GADGETS, "", 1, accept=PARTIAL)


@case()
def as_a_table(t: Talk) -> None:
    start = t.send("GET", GADGETS).revision
    t.given(GADGETS, gadget("a"))
    t.send("PATCH", f"{GADGETS}/a", {"spec": {"size": 2}}, content_type="application/merge-patch+json")
    t.watch(GADGETS, f"&resourceVersion={start}", 2, accept=TABLE)


@case()
def one_path_with_a_name(t: Talk) -> None:
    t.given(GADGETS, gadget("a"))
    t.given(GADGETS, gadget("b"))
    t.watch(f"{GADGETS}", "&fieldSelector=metadata.name%3Da", 1)


@case()
def the_end_of_its_time(t: Talk) -> None:
    start = t.send("GET", GADGETS).revision
    t.get(f"{GADGETS}?watch=1&resourceVersion={start}&timeoutSeconds=1")


@case()
def a_held_object_goes(t: Talk) -> None:
    start = t.send("GET", MAPS).revision
    t.given(MAPS, {"metadata": {"name": "a", "labels": {"mine": "yes"}, "finalizers": ["contract.test/hold"]}})
    t.send("DELETE", f"{MAPS}/a")
    t.send("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
    t.watch(MAPS, f"&resourceVersion={start}&labelSelector=mine", 3)
