"""Who goes when an owner goes."""

from __future__ import annotations

from virt_local.controllers.garbage.graph import FOREGROUND, ORPHAN, Act, Decision, Graph, Item, Owner


def item(uid: str, *owners: str | Owner, namespace: str = "ns", deleting: bool = False, finalizers: str = "") -> Item:
    made = tuple(each if isinstance(each, Owner) else Owner(each) for each in owners)
    return Item(uid, "things", namespace, uid, made, deleting, tuple(finalizers.split()))


def graph_of(*items: Item) -> Graph:
    graph = Graph()
    for each in items:
        graph.put(each)
    return graph


def test_an_owned_object_stays_while_its_owner_is_there() -> None:
    graph = graph_of(item("o"), item("d", "o"))
    assert graph.decide("d").act is Act.NOTHING
    assert graph.decide("o").act is Act.NOTHING


def test_dependents_are_looked_at_and_deleted_when_the_owner_is_gone() -> None:
    graph = graph_of(item("o"), item("d", "o"))
    assert graph.remove("o") == ["d"]
    assert graph.decide("d") == Decision(Act.DELETE, "Background")


def test_an_owner_is_known_by_its_uid() -> None:
    """A new object under the old name is somebody else (issue of label or name based ownership)."""
    graph = graph_of(item("new"), item("d", "old"))
    assert graph.decide("d").act is Act.DELETE


def test_one_living_owner_holds_and_the_lost_one_is_dropped() -> None:
    graph = graph_of(item("o1"), item("d", "o1", "o2"))
    assert graph.decide("d") == Decision(Act.DROP_OWNERS, owners=frozenset(("o2",)))


def test_an_owner_in_another_namespace_does_not_hold() -> None:
    graph = graph_of(item("o", namespace="other"), item("c", namespace=""), item("d", "o"), item("e", "c"))
    assert graph.decide("d").act is Act.DELETE
    assert graph.decide("e").act is Act.NOTHING


def test_an_owner_that_is_merely_being_deleted_still_holds() -> None:
    graph = graph_of(item("o", deleting=True, finalizers="example.org/hold"), item("d", "o"))
    assert graph.decide("d").act is Act.NOTHING


def test_foreground_waits_for_those_that_block() -> None:
    graph = graph_of(item("o"), item("d", Owner("o", blocks=True)), item("e", "o"))
    look = graph.put(item("o", deleting=True, finalizers=FOREGROUND))
    assert set(look) == {"o", "d", "e"}
    assert graph.decide("o").act is Act.NOTHING
    assert graph.decide("d").act is Act.DELETE
    assert graph.decide("e").act is Act.DELETE
    assert graph.remove("d") == ["o"]
    assert graph.decide("o") == Decision(Act.DROP_FINALIZER, finalizer=FOREGROUND)


def test_foreground_goes_down_the_tree() -> None:
    graph = graph_of(
        item("o", deleting=True, finalizers=FOREGROUND),
        item("d", Owner("o", blocks=True)),
        item("g", Owner("d", blocks=True)),
    )
    assert graph.decide("d") == Decision(Act.DELETE, "Foreground")


def test_orphans_are_released_before_their_owner_goes() -> None:
    graph = graph_of(item("d", "o"), item("o", deleting=True, finalizers=ORPHAN))
    assert graph.decide("d").act is Act.NOTHING
    assert graph.decide("o") == Decision(Act.RELEASE, dependents=("d",))
    graph.put(item("d"))
    assert graph.decide("o") == Decision(Act.DROP_FINALIZER, finalizer=ORPHAN)
    graph.remove("o")
    assert graph.decide("d").act is Act.NOTHING


def test_nothing_is_deleted_twice() -> None:
    graph = graph_of(item("d", "gone", deleting=True, finalizers="example.org/hold"))
    assert graph.decide("d").act is Act.NOTHING


def test_what_is_gone_is_forgotten() -> None:
    graph = graph_of(item("o"), item("d", "o"))
    graph.remove("d")
    graph.remove("o")
    assert not graph.items
    assert not graph.dependents
