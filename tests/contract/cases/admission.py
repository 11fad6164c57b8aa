"""Admission webhooks: what they are asked, and what their answers do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from contract.cases.lists import gadget
from contract.table import case
from contract.talk import GADGETS, GROUP, PODS, Talk

_BASE = "/apis/admissionregistration.k8s.io/v1"
_PLURALS = {"Mutating": "mutatingwebhookconfigurations", "Validating": "validatingwebhookconfigurations"}


def _entry(t: Talk, behaviour: str, **more: Any) -> dict[str, Any]:
    """A webhook for gadgets in this conversation's namespace only."""
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["gadgets", "gadgets/status"],
        "scope": "Namespaced",
    }
    return {
        "name": "hook.contract.virtpod.test",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 3,
        "failurePolicy": "Fail",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": t.ns}},
        "clientConfig": t.backends.client_config(behaviour),
        "rules": [rule],
        **more,
    }


@contextmanager
def _hooked(t: Talk, kind: str, *entries: dict[str, Any], settle: str = "Gadget") -> Iterator[None]:
    """Installs a configuration and waits until it has its effect: a real API server learns of it by a watch."""
    name = t.own("contract", "HOOKS")
    marker = t.own("marker", "MARKER")
    witness = _entry(t, "deny-message", name="witness.contract.virtpod.test")
    witness["objectSelector"] = {"matchLabels": {"marker": marker}}
    body = {"metadata": {"name": name}, "webhooks": [witness, *entries]}
    t.given(f"{_BASE}/{_PLURALS[kind]}", body)
    t.undo(f"{_BASE}/{_PLURALS[kind]}/{name}")
    _wait_for(t, marker)
    t.backends.take_reviews()
    yield
    t.send("DELETE", f"{_BASE}/{_PLURALS[kind]}/{name}")


def _wait_for(t: Talk, marker: str) -> None:
    import time

    probe = gadget("witness")
    probe["metadata"]["labels"] = {"marker": marker}
    deadline = time.monotonic() + 20
    while t.send("POST", f"{GADGETS}?dryRun=All", probe).status == 201:
        assert time.monotonic() < deadline, "the webhook configuration had no effect"
        time.sleep(0.02)


def _asked(t: Talk) -> None:
    t.note("the webhook was asked", t.backends.take_reviews())


@case()
def questions(t: Talk) -> None:
    """What a webhook is told about each operation."""
    with _hooked(t, "Validating", _entry(t, "allow")):
        t.send("POST", f"{GADGETS}?fieldManager=tester", gadget("a"))
        _asked(t)
        t.send("PATCH", f"{GADGETS}/a", {"spec": {"size": 2}}, content_type="application/merge-patch+json")
        _asked(t)
        t.send("PATCH", f"{GADGETS}/a/status", {"status": {"phase": "x"}}, content_type="application/merge-patch+json")
        _asked(t)
        t.send("DELETE", f"{GADGETS}/a", {"propagationPolicy": "Background"})
        _asked(t)
        t.send("POST", f"{GADGETS}?dryRun=All", {**gadget(""), "metadata": {"generateName": "made-"}}, user="somebody")
        t.send("POST", f"{GADGETS}?dryRun=All", {**gadget(""), "metadata": {"generateName": "made-"}})
        _asked(t)


@case()
def a_webhook_behind_the_aggregated_api(t: Talk) -> None:
    """The API server asks it by way of itself, and the aggregation layer tells who asks."""
    for behaviour in ("label", "deny-code"):
        with _hooked(t, "Mutating", _entry(t, behaviour, clientConfig=t.backends.own_config(behaviour))):
            t.backends.take_askers()
            t.create(GADGETS, gadget("a"))
            t.note("as whom it was asked", t.backends.take_askers())
    nowhere = t.backends.own_config("allow")
    nowhere["service"]["path"] = "/apis/nobody.contract.virtpod.test/v1/reviews/allow"
    with _hooked(t, "Mutating", _entry(t, "allow", clientConfig=nowhere)):
        t.create(GADGETS, gadget("b"))


@case()
def denials(t: Talk) -> None:
    for behaviour in ("deny", "deny-message", "deny-reason", "deny-code", "deny-low-code", "deny-causes", "deny-full"):
        with _hooked(t, "Validating", _entry(t, behaviour)):
            t.create(GADGETS, gadget("a"))


@case()
def denials_by_a_mutating_webhook(t: Talk) -> None:
    with _hooked(t, "Mutating", _entry(t, "deny-message")):
        t.create(GADGETS, gadget("a"))


@case()
def denied_updates_and_deletions(t: Talk) -> None:
    t.given(GADGETS, gadget("a"))
    with _hooked(t, "Validating", _entry(t, "deny-message")):
        t.patch(f"{GADGETS}/a", {"spec": {"size": 2}})
        t.patch(f"{GADGETS}/a/status", {"status": {"phase": "x"}})
        t.delete(f"{GADGETS}/a")
        t.delete(GADGETS)
    t.get(f"{GADGETS}/a")


@case()
def warnings(t: Talk) -> None:
    with _hooked(t, "Validating", _entry(t, "warn")):
        t.create(GADGETS, gadget("a", unknown=1))


@case()
def patches(t: Talk) -> None:
    with _hooked(t, "Mutating", _entry(t, "label"), _entry(t, "grow", name="second.contract.virtpod.test")):
        t.create(GADGETS, gadget("a"))
        t.create(f"{GADGETS}?dryRun=All", gadget("b"))


@case()
def patches_before_validation(t: Talk) -> None:
    with _hooked(t, "Mutating", _entry(t, "grow")):
        t.create(GADGETS, gadget("a", size=0))
    with _hooked(t, "Mutating", _entry(t, "spoil")):
        t.create(GADGETS, gadget("b"))
    with _hooked(t, "Mutating", _entry(t, "unknown-field")):
        t.create(GADGETS, gadget("c"))


@case(words=False)
def patches_that_fail(t: Talk) -> None:
    for behaviour in ("bad-patch", "patch-no-type", "rename"):
        with _hooked(t, "Mutating", _entry(t, behaviour)):
            t.create(GADGETS, gadget("a"))
    with _hooked(t, "Mutating", _entry(t, "bad-patch", failurePolicy="Ignore")):
        t.create(f"{GADGETS}?dryRun=All", gadget("a"))


@case(words=False)
def failures(t: Talk) -> None:
    for behaviour in ("broken", "nonsense", "stranger", "missing/path"):
        with _hooked(t, "Validating", _entry(t, behaviour)):
            t.create(GADGETS, gadget("a"))


@case()
def timeouts(t: Talk) -> None:
    with _hooked(t, "Validating", _entry(t, "slow", timeoutSeconds=1)):
        t.create(GADGETS, gadget("a"))


@case()
def failures_that_are_ignored(t: Talk) -> None:
    for behaviour in ("broken", "nonsense"):
        with _hooked(t, "Validating", _entry(t, behaviour, failurePolicy="Ignore")):
            t.create(f"{GADGETS}?dryRun=All", gadget("a"))


@case()
def selectors(t: Talk) -> None:
    selector = {"matchExpressions": [{"key": "guarded", "operator": "In", "values": ["yes"]}]}
    with _hooked(t, "Validating", _entry(t, "deny-message", objectSelector=selector)):
        t.create(f"{GADGETS}?dryRun=All", gadget("a"), pick=lambda body: body["kind"])
        guarded = gadget("b")
        guarded["metadata"]["labels"] = {"guarded": "yes"}
        t.create(GADGETS, guarded)


@case()
def match_conditions(t: Talk) -> None:
    conditions = [
        {"name": "big-ones", "expression": "object.spec.size > 5"},
        {"name": "not-the-boss", "expression": "!request.userInfo.username.startsWith('boss')"},
    ]
    with _hooked(t, "Validating", _entry(t, "deny-message", matchConditions=conditions)):
        t.create(f"{GADGETS}?dryRun=All", gadget("a"), pick=lambda body: body["kind"])
        t.create(GADGETS, gadget("b", size=6))
    broken = [{"name": "odd", "expression": "object.spec.nowhere > 5"}]
    with _hooked(t, "Validating", _entry(t, "deny-message", matchConditions=broken)):
        t.create(GADGETS, gadget("c"))


@case()
def other_versions(t: Talk) -> None:
    other = f"/apis/{GROUP}/v1alpha1/namespaces/{{ns}}/gadgets"
    with _hooked(t, "Mutating", _entry(t, "label")):
        t.create(other, gadget("a") | {"apiVersion": f"{GROUP}/v1alpha1"})
        _asked(t)
    with _hooked(t, "Mutating", _entry(t, "label", matchPolicy="Exact")):
        t.create(other, gadget("b") | {"apiVersion": f"{GROUP}/v1alpha1"})


@case()
def reinvocation(t: Talk) -> None:
    first = _entry(t, "allow", reinvocationPolicy="IfNeeded")
    with _hooked(t, "Mutating", first, _entry(t, "label", name="second.contract.virtpod.test")):
        t.create(GADGETS, gadget("a"))
        t.note("questions", len(t.backends.take_reviews()))


@case()
def evictions(t: Talk) -> None:
    """The one subresource of a built-in kind that our own webhooks look at."""
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "schedulerName": "nobody",
        "automountServiceAccountToken": False,
    }
    t.given(PODS, {"metadata": {"name": "p"}, "spec": spec})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods/eviction"]}
    with _hooked(t, "Validating", _entry(t, "deny-message", rules=[rule])):
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        t.create(f"{PODS}/p/eviction", eviction)
        _asked(t)
    t.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})


@case()
def a_configuration(t: Talk) -> None:
    """Its defaults."""
    for kind, plural in _PLURALS.items():
        name = t.own("contract", "HOOKS")
        minimal = {
            "name": "hook.contract.virtpod.test",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"service": {"name": "none", "namespace": "none"}},
            "objectSelector": {"matchLabels": {"never": "set"}},
            "rules": [{"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]}],
        }
        t.undo(f"{_BASE}/{plural}/{name}")
        t.create(f"{_BASE}/{plural}", {"metadata": {"name": name}, "webhooks": [minimal]})
        t.get(f"{_BASE}/{plural}/{name}", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        assert kind


@case(words=False)
def bad_configurations(t: Talk) -> None:
    name = t.own("contract", "HOOKS")
    t.undo(f"{_BASE}/{_PLURALS['Validating']}/{name}")
    wrong: list[dict[str, Any]] = [
        {"name": "short"},
        {"sideEffects": "Some"},
        {"admissionReviewVersions": []},
        {"clientConfig": {}},
        {"clientConfig": {"url": "http://plain.example"}},
        {"failurePolicy": "Panic"},
        {"timeoutSeconds": 31},
        {"rules": [{"operations": ["CREATE"]}]},
        {"matchConditions": [{"name": "x", "expression": "1 +"}]},
        {"matchConditions": [{"name": "x", "expression": "'text'"}]},
    ]
    for change in wrong:
        entry = _entry(t, "allow", **change)
        t.create(f"{_BASE}/{_PLURALS['Validating']}", {"metadata": {"name": name}, "webhooks": [entry]})
