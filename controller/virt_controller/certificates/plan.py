"""Decides what to do next with the CA and the certificates. Pure: a state and a moment in, steps out.

The rule behind everything: nobody shows a certificate before everybody trusts who signed it, and nobody stops trusting
a CA before everybody has stopped showing its certificates. So a CA lives through four stages: it is made and published
(next), it signs (active), it only is trusted (retired), it is forgotten. Between the stages lies the overlap, counted
from the moment at which the stage was seen to be complete. Only where nothing is left to lose (an expired CA, a broken
certificate) a step is taken at once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from virt_controller.certificates.model import (
    Authority,
    Forget,
    Issue,
    Leaf,
    Make,
    Mark,
    Note,
    Plan,
    Policy,
    Promote,
    Publish,
    Slot,
    State,
    Step,
)

#: How much of its life a certificate or an authority is used before the next one is made.
_USED = 2 / 3
#: We look at least this often: clocks are set, and people change things.
_LOOK_EVERY = timedelta(hours=1)


def plan(state: State, policy: Policy, now: datetime) -> Plan:
    state = _without_expired(state, now)
    bundle = tuple(authority.id for authority in state.trusted)
    steps = _authorities(state, policy, now) or _others(state, policy, bundle, now)
    return Plan(tuple(steps), bundle, _wake(state, policy, now))


def usable(leaf: Leaf | None, state: State, now: datetime) -> bool:
    """Somebody who trusts the bundle believes it."""
    return leaf is not None and leaf.fits and now < leaf.ends and any(leaf.issuer == a.id for a in state.trusted)


def _without_expired(state: State, now: datetime) -> State:
    def alive(authority: Authority | None) -> Authority | None:
        return authority if authority is not None and now < authority.ends else None

    return State(
        active=alive(state.active),
        next=alive(state.next),
        trusted=tuple(authority for authority in state.trusted if now < authority.ends),
        leaves=state.leaves,
        bundles=state.bundles,
        next_since=state.next_since,
        settled_since=state.settled_since,
    )


def _authorities(state: State, policy: Policy, now: datetime) -> list[Step]:
    """What changes the authorities; at most one stage at a time."""
    if state.active is None:
        return _without_active(state, policy, now)
    if state.next is None:
        if now >= _due(state.active.made, state.active.ends, policy.ca_life):
            return [Make(Slot.NEXT)]
        return _retire(state, policy, now)
    return _towards_promotion(state, policy, now) or _retire(state, policy, now)


def _without_active(state: State, policy: Policy, now: datetime) -> list[Step]:
    """The key that signed is lost or too old. While its certificates are believed, there is time for an overlap."""
    believed = any(usable(leaf, state, now) for leaf in state.leaves.values())
    if state.next is None:
        return [Make(Slot.NEXT if believed else Slot.ACTIVE)]
    return _towards_promotion(state, policy, now) if believed else [Promote()]


def _towards_promotion(state: State, policy: Policy, now: datetime) -> list[Step]:
    if not _everybody_trusts_next(state):
        return []
    if state.next_since is None or state.next_since > now:
        return [Note(Mark.NEXT_TRUSTED)]
    return [Promote()] if now >= _promotion(state, state.next_since, policy) else []


def _promotion(state: State, trusted_since: datetime, policy: Policy) -> datetime:
    """After the overlap. Where less than that is left of what is shown now, one half is for those who must learn to
    trust, the other for those who must learn to show."""
    ends = [leaf.ends for leaf in state.leaves.values() if leaf is not None and leaf.fits]
    last = state.active.ends if state.active is not None else min(ends, default=datetime.max.replace(tzinfo=UTC))
    return trusted_since + min(policy.overlap, (last - trusted_since) / 2)


def _everybody_trusts_next(state: State) -> bool:
    wanted = state.next
    return wanted is not None and all(bundle and wanted.id in bundle for bundle in state.bundles.values())


def _retire(state: State, policy: Policy, now: datetime) -> list[Step]:
    """Old authorities go when none of their certificates has been shown for a while."""
    old = [authority.id for authority in state.trusted if authority not in (state.active, state.next)]
    shown = {leaf.issuer for leaf in state.leaves.values() if leaf is not None}
    if not old or shown & set(old):
        return []
    if state.settled_since is None or state.settled_since > now:
        return [Note(Mark.SETTLED)]
    return [Forget(tuple(old))] if now >= state.settled_since + policy.overlap else []


def _others(state: State, policy: Policy, bundle: tuple[str, ...], now: datetime) -> list[Step]:
    """Trust first, then what is to be trusted."""
    issues = {name: _issue(name, leaf, state, policy, now) for name, leaf in state.leaves.items()}
    publish = [Publish(name) for name, held in state.bundles.items() if held != bundle and not issues.get(name)]
    return [*publish, *(step for step in issues.values() if step is not None)]


def _issue(name: str, leaf: Leaf | None, state: State, policy: Policy, now: datetime) -> Issue | None:
    signer, slot = (state.active, Slot.ACTIVE) if state.active is not None else (state.next, Slot.NEXT)
    if signer is None:
        return None
    if leaf is None or not usable(leaf, state, now):
        return Issue(name, slot)
    if state.active is None:
        return None
    old_issuer = leaf.issuer not in {signer.id, state.next.id if state.next is not None else ""}
    if old_issuer or (now >= _due(leaf.made, leaf.ends, policy.leaf_life) and _is_gain(leaf, signer, policy, now)):
        return Issue(name, slot)
    return None


def _is_gain(leaf: Leaf, signer: Authority, policy: Policy, now: datetime) -> bool:
    """A new certificate ends with its CA at the latest; shortly before that it would be the old one again."""
    ends = min(now + policy.leaf_life, signer.ends)
    return abs(ends - leaf.ends) > min(leaf.ends - leaf.made, policy.leaf_life) / 10


def _due(made: datetime, ends: datetime, life: timedelta) -> datetime:
    """When the next one is made: by its own life, or by the life that such things have now, if that is shorter."""
    return made + min(ends - made, life) * _USED


def _wake(state: State, policy: Policy, now: datetime) -> datetime:
    moments = [now + _LOOK_EVERY, *(authority.ends for authority in state.trusted)]
    if state.active is not None:
        moments.append(_due(state.active.made, state.active.ends, policy.ca_life))
    if state.next is not None and state.next_since is not None:
        moments.append(_promotion(state, state.next_since, policy))
    if state.settled_since is not None:
        moments.append(state.settled_since + policy.overlap)
    for leaf in state.leaves.values():
        if leaf is not None:
            moments += [leaf.ends, _due(leaf.made, leaf.ends, policy.leaf_life)]
    return min(moment for moment in moments if moment > now)
