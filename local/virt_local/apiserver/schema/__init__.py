"""Schemas of objects: what a field may hold, what is unknown, what is filled in, and how lists merge."""

from virt_local.apiserver.schema.defaults import apply_defaults
from virt_local.apiserver.schema.node import Node, compile_schema
from virt_local.apiserver.schema.prune import prune
from virt_local.apiserver.schema.validate import validate

__all__ = ["Node", "apply_defaults", "compile_schema", "prune", "validate"]
