"""Nobody grants what they do not hold: the check on writes of roles and bindings.

A rule is broken into single permissions (one verb, one group, one resource, one name); each must be covered by one of
the user's own rules. `escalate` on a role, or `bind` on the role that a binding names, lifts the check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, Attributes, Object, User
from virt_local.apiserver.security.rbac import GROUP, MASTERS, RbacIndex, Rule, parse_rules, resource_matches


def check_rbac_write(index: RbacIndex, request: AdmissionRequest) -> None:
    """Raises Forbidden when the write would hand out more than its writer holds."""
    if request.group != GROUP or request.object is None or request.operation not in ("CREATE", "UPDATE"):
        return
    if MASTERS in request.user.groups or _unchanged(request):
        return
    if request.resource in ("roles", "clusterroles"):
        _check_role(index, request)
    elif request.resource in ("rolebindings", "clusterrolebindings"):
        _check_binding(index, request)


def _unchanged(request: AdmissionRequest) -> bool:
    """Labels and annotations may be edited by who may edit the object; only rules, subjects and the reference count."""
    old, new = request.old_object, request.object
    fields = ("rules", "aggregationRule", "subjects", "roleRef")
    return old is not None and new is not None and all(old.get(field) == new.get(field) for field in fields)


def _check_role(index: RbacIndex, request: AdmissionRequest) -> None:
    role = request.object or {}
    if _may(index, request, "escalate", request.resource, request.name):
        return
    if role.get("aggregationRule"):
        everything = Rule(frozenset("*"), frozenset("*"), frozenset("*"))
        _require(index, request, (everything,), request.namespace)
    _require(index, request, parse_rules(role), request.namespace)


def _check_binding(index: RbacIndex, request: AdmissionRequest) -> None:
    ref = (request.object or {}).get("roleRef") or {}
    kind, name = ref.get("kind", ""), ref.get("name", "")
    resource = "clusterroles" if kind == "ClusterRole" else "roles"
    if _may(index, request, "bind", resource, name):
        return
    rules = index.role_rules(kind, request.namespace, name)
    if rules is None:
        raise errors.not_found(resource, GROUP, name)
    _require(index, request, rules, request.namespace)


def _may(index: RbacIndex, request: AdmissionRequest, verb: str, resource: str, name: str) -> bool:
    asked = Attributes(
        verb=verb, is_resource=True, group=GROUP, resource=resource, namespace=request.namespace, name=name
    )
    return index.authorize(request.user, asked).allowed


def _require(index: RbacIndex, request: AdmissionRequest, rules: Sequence[Rule], namespace: str) -> None:
    held = [rule for rule, _ in index.rules_of(request.user, namespace)]
    missing = [rule for rule in rules if not covered(rule, held)]
    if missing:
        why = f"{_who(request.user)} is attempting to grant RBAC permissions not currently held:\n"
        why += "\n".join(_text(rule.to_plain()) for rule in missing)
        raise errors.forbidden(request.resource, GROUP, request.name, why)


def covered(rule: Rule, held: Sequence[Rule]) -> bool:
    return all(any(_covers(mine, single) for mine in held) for single in _singles(rule))


def _singles(rule: Rule) -> Iterator[Rule]:
    for verb in rule.verbs:
        for url in rule.urls:
            yield Rule(frozenset((verb,)), urls=(url,))
        for group in rule.groups:
            for resource in rule.resources:
                for name in rule.names or ("",):
                    names = frozenset((name,)) if name else frozenset[str]()
                    yield Rule(frozenset((verb,)), frozenset((group,)), frozenset((resource,)), names)


def _covers(mine: Rule, single: Rule) -> bool:
    if not (single.verbs <= mine.verbs or "*" in mine.verbs):
        return False
    if single.urls:
        return any(_url_covers(url, single.urls[0]) for url in mine.urls)
    if not (single.groups <= mine.groups or "*" in mine.groups):
        return False
    if mine.names and not (single.names and single.names <= mine.names):
        return False
    (resource,) = single.resources
    main, _, sub = resource.partition("/")
    return (
        resource in mine.resources
        or (main != "*" and resource_matches(mine.resources, main, sub))
        or "*" in mine.resources
    )


def _url_covers(mine: str, asked: str) -> bool:
    return mine == asked or (mine.endswith("*") and asked.rstrip("*").startswith(mine[:-1]))


def _who(user: User) -> str:
    return f'user "{user.name}" (groups=[{" ".join(f"{group!r}" for group in user.groups)}])'.replace("'", '"')


def _text(rule: Object) -> str:
    names = {"apiGroups": "APIGroups", "resources": "Resources", "resourceNames": "ResourceNames"}
    names |= {"nonResourceURLs": "NonResourceURLs", "verbs": "Verbs"}
    parts = [f"{title}:[{', '.join(_quoted(rule[key]))}]" for key, title in names.items() if key in rule]
    return "{" + ", ".join(parts) + "}"


def _quoted(values: Sequence[str]) -> list[str]:
    return [f'"{value}"' for value in values]
