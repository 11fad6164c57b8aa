"""Role, ClusterRole and their bindings."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import LabelSelector, ObjectMeta


class PolicyRule(Struct):
    """Verbs on resources or on paths."""

    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []
    non_resource_urls: list[str] = field(default_factory=list, name="nonResourceURLs")


class AggregationRule(Struct):
    """Which ClusterRoles are summed up."""

    cluster_role_selectors: list[LabelSelector] = []


class Role(Struct):
    """Rules within a namespace."""

    api_version: str = "rbac.authorization.k8s.io/v1"
    kind: str = "Role"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    rules: list[PolicyRule] | None = None


class ClusterRole(Struct):
    """Rules for the cluster."""

    api_version: str = "rbac.authorization.k8s.io/v1"
    kind: str = "ClusterRole"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    rules: list[PolicyRule] | None = None
    aggregation_rule: AggregationRule | None = None


class RoleRef(Struct):
    """The role of a binding."""

    kind: str = ""
    name: str = ""
    api_group: str = ""


class Subject(Struct):
    """A user, a group or a service account."""

    kind: str
    name: str
    api_group: str = ""
    namespace: str = ""


class RoleBinding(Struct):
    """Gives a role within a namespace."""

    api_version: str = "rbac.authorization.k8s.io/v1"
    kind: str = "RoleBinding"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    subjects: list[Subject] = []
    role_ref: RoleRef = field(default_factory=RoleRef)


class ClusterRoleBinding(Struct):
    """Gives a ClusterRole everywhere."""

    api_version: str = "rbac.authorization.k8s.io/v1"
    kind: str = "ClusterRoleBinding"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    subjects: list[Subject] = []
    role_ref: RoleRef = field(default_factory=RoleRef)
