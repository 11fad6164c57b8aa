"""May this user do this: nodes by their own rules, everybody else by RBAC."""

from __future__ import annotations

from virt_local.apiserver.hooks import Attributes, Decision, Object, User
from virt_local.apiserver.security.node_authorizer import authorize_node
from virt_local.apiserver.security.objects import Source, follow
from virt_local.apiserver.security.rbac import GROUP, MASTERS, RbacIndex

_KINDS = {
    "roles": "Role",
    "clusterroles": "ClusterRole",
    "rolebindings": "RoleBinding",
    "clusterrolebindings": "ClusterRoleBinding",
}


class Authorizer:
    """Implements hooks.Authorizer."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.index = RbacIndex()
        for resource, kind in _KINDS.items():
            self._follow(resource, kind)

    def _follow(self, resource: str, kind: str) -> None:
        index = self.index
        follow(
            self._source,
            f"{resource}.{GROUP}",
            lambda obj: index.put(kind, obj),
            lambda obj: index.remove(kind, obj),
        )

    async def authorize(self, user: User, attributes: Attributes) -> Decision:
        decision = authorize_node(self._source, user, attributes)
        if decision.allowed:
            return decision
        by_role = self.index.authorize(user, attributes)
        return by_role if by_role.allowed or not decision.reason else decision

    async def rules(self, user: User, namespace: str) -> tuple[list[Object], list[Object]]:
        if MASTERS in user.groups:
            everything: Object = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            return [everything], [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        held = [rule for rule, _ in self.index.rules_of(user, namespace)]
        resources = [rule.to_plain() for rule in held if rule.resources]
        urls = [{"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.urls)} for rule in held if rule.urls]
        return resources, urls
