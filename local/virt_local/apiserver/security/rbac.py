"""Role-based access control: who may do what, answered from indexes that follow the stored roles and bindings.

The index is fed with objects and keeps flattened rules for each user and namespace until the next change, so that a
request costs a few set look-ups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from virt_local.apiserver.hooks import Attributes, Decision, User
from virt_local.apiserver.selectors import selects

Object = dict[str, Any]
MASTERS = "system:masters"
GROUP = "rbac.authorization.k8s.io"
_CACHE_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Rule:
    """A PolicyRule in a form that answers quickly."""

    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    urls: tuple[str, ...] = ()

    def allows(self, asked: Attributes) -> bool:
        if asked.verb not in self.verbs and "*" not in self.verbs:
            return False
        return self._allows_resource(asked) if asked.is_resource else self._allows_url(asked.path)

    def _allows_resource(self, asked: Attributes) -> bool:
        if asked.group not in self.groups and "*" not in self.groups:
            return False
        if self.names and asked.name not in self.names:
            return False
        return resource_matches(self.resources, asked.resource, asked.subresource)

    def _allows_url(self, path: str) -> bool:
        return any(url == path or (url.endswith("*") and path.startswith(url[:-1])) for url in self.urls)

    def to_plain(self) -> Object:
        fields = {
            "verbs": sorted(self.verbs),
            "apiGroups": sorted(self.groups),
            "resources": sorted(self.resources),
            "resourceNames": sorted(self.names),
            "nonResourceURLs": list(self.urls),
        }
        return {key: value for key, value in fields.items() if value}


def resource_matches(patterns: frozenset[str], resource: str, subresource: str) -> bool:
    """`pods`, `pods/log`, `*/log` and `*`; a rule on `pods` says nothing about `pods/log`."""
    if "*" in patterns:
        return True
    if not subresource:
        return resource in patterns
    return f"{resource}/{subresource}" in patterns or f"*/{subresource}" in patterns


def parse_rule(rule: Object) -> Rule:
    return Rule(
        verbs=frozenset(rule.get("verbs") or ()),
        groups=frozenset(rule.get("apiGroups") or ()),
        resources=frozenset(rule.get("resources") or ()),
        names=frozenset(rule.get("resourceNames") or ()),
        urls=tuple(rule.get("nonResourceURLs") or ()),
    )


def parse_rules(role: Object) -> tuple[Rule, ...]:
    return tuple(parse_rule(rule) for rule in role.get("rules") or ())


@dataclass(frozen=True, slots=True)
class Grant:
    """One binding as seen by one of its subjects. An empty namespace is the whole cluster."""

    namespace: str
    role_kind: str
    role_name: str
    binding: str
    subject: str


class RbacIndex:
    """Roles and bindings, and the question whether a user may do something."""

    def __init__(self) -> None:
        self._roles: dict[tuple[str, str], Object] = {}
        self._bindings: dict[tuple[str, str], Object] = {}
        self._grants: dict[str, list[Grant]] = {}
        self._stale = True
        self._rules: dict[tuple[str, tuple[str, ...], str], tuple[tuple[Rule, Grant], ...]] = {}

    def put(self, kind: str, obj: Object) -> None:
        """Takes a Role, ClusterRole, RoleBinding or ClusterRoleBinding as it is stored now."""
        self._table(kind)[_key(obj)] = obj
        self._changed()

    def remove(self, kind: str, obj: Object) -> None:
        self._table(kind).pop(_key(obj), None)
        self._changed()

    def authorize(self, user: User, asked: Attributes) -> Decision:
        if MASTERS in user.groups:
            return Decision(True)
        for rule, grant in self.rules_of(user, asked.namespace):
            if rule.allows(asked):
                role = f'{grant.role_kind} "{grant.role_name}"'
                return Decision(True, f"RBAC: allowed by {grant.binding} of {role} to {grant.subject}")
        return Decision(False)

    def rules_of(self, user: User, namespace: str) -> tuple[tuple[Rule, Grant], ...]:
        """Every rule that holds for the user in the namespace, cluster-wide ones included."""
        key = (user.name, user.groups, namespace)
        found = self._rules.get(key)
        if found is None or self._stale:
            self._refresh()
            found = tuple(self._collect(user, namespace))
            if len(self._rules) >= _CACHE_LIMIT:
                self._rules.clear()
            self._rules[key] = found
        return found

    def role_rules(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """The rules of a role, aggregated ones included; None when there is no such role."""
        role = self._roles.get(("" if kind == "ClusterRole" else namespace, name))
        if role is None:
            return None
        selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors")
        if kind != "ClusterRole" or not selectors:
            return parse_rules(role)
        return tuple(rule for source in self._aggregated(name, selectors) for rule in parse_rules(source))

    def _aggregated(self, name: str, selectors: Sequence[Object]) -> Iterator[Object]:
        for (namespace, other), role in sorted(self._roles.items()):
            labels = role["metadata"].get("labels") or {}
            if not namespace and other != name and any(selects(selector, labels) for selector in selectors):
                yield from self._expand(role)

    def _expand(self, role: Object) -> Iterator[Object]:
        """`admin` selects `edit`, which selects `view`: an aggregate of aggregates, at most a few deep."""
        selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors")
        if selectors:
            yield from self._aggregated(role["metadata"]["name"], selectors)
        else:
            yield role

    def _collect(self, user: User, namespace: str) -> Iterator[tuple[Rule, Grant]]:
        for subject in _subjects_of(user):
            for grant in self._grants.get(subject, ()):
                if grant.namespace in ("", namespace):
                    for rule in self.role_rules(grant.role_kind, grant.namespace, grant.role_name) or ():
                        yield rule, grant

    def _refresh(self) -> None:
        if not self._stale:
            return
        self._rules.clear()
        self._grants = {}
        for (namespace, name), binding in self._bindings.items():
            for subject in binding.get("subjects") or ():
                grant = _grant(namespace, name, binding, subject)
                self._grants.setdefault(subject_key(subject, namespace), []).append(grant)
        self._stale = False

    def _changed(self) -> None:
        self._stale = True

    def _table(self, kind: str) -> dict[tuple[str, str], Object]:
        return self._bindings if kind.endswith("Binding") else self._roles


def subject_key(subject: Object, binding_namespace: str) -> str:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind == "ServiceAccount":
        return f"u:system:serviceaccount:{subject.get('namespace') or binding_namespace}:{name}"
    return f"g:{name}" if kind == "Group" else f"u:{name}"


def _grant(namespace: str, name: str, binding: Object, subject: Object) -> Grant:
    ref = binding.get("roleRef") or {}
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    where = f"{name}/{namespace}" if namespace else name
    whom = str(subject.get("name", ""))
    if subject.get("kind") == "ServiceAccount":
        whom += f"/{subject.get('namespace') or namespace}"
    told = f'{subject.get("kind", "")} "{whom}"'
    return Grant(namespace, ref.get("kind", ""), ref.get("name", ""), f'{kind} "{where}"', told)


def _subjects_of(user: User) -> Iterable[str]:
    yield f"u:{user.name}"
    for group in user.groups:
        yield f"g:{group}"


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
