"""Schemas of objects: what a field may hold, what is unknown, what is filled in, and how lists merge."""

from virt_local.apiserver.schema.compact import compact, metadata_node
from virt_local.apiserver.schema.defaults import apply_defaults, drop_nulls
from virt_local.apiserver.schema.node import Node, compile_schema
from virt_local.apiserver.schema.prune import prune
from virt_local.apiserver.schema.rules import check_rules
from virt_local.apiserver.schema.validate import validate

__all__ = [
    "Node",
    "apply_defaults",
    "check_rules",
    "compact",
    "compile_schema",
    "drop_nulls",
    "metadata_node",
    "prune",
    "validate",
]
