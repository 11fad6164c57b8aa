"""Instance types and preferences: a library without I/O. Who has a cluster passes a `Lookup`.

vm = infer(vm, lookup)                    # inferFromVolume → {name, kind}
found = resolve(vm, lookup)               # the specs that hold for a VM: a stored revision, else the object itself
check(vm, found) -> list[Conflict]        # all that admission refuses: conflicts, spread, requirements
capture(vm, lookup) -> Capture            # the ControllerRevisions to store, and the VM's status references
modernized(vm, capture, lookup) -> Capture    # the same, with those of an older form in today's
shape(vmi.spec, vmi.metadata, found, …)   # a new VMI: default devices, instance type, preference
annotations_for(vm)                       # the annotations of that VMI
apply(spec, metadata, instancetype, preference) -> list[Conflict]    # the core of it
expand_vm(vm, lookup) -> VirtualMachine   # a copy with everything written out and the names gone
"""

from virt_core.instancetype.apply import apply, find_conflicts
from virt_core.instancetype.conflicts import Conflict
from virt_core.instancetype.expand import (
    ConflictError,
    add_default_devices,
    annotations_for,
    check,
    expand_vm,
    shape,
)
from virt_core.instancetype.find import Found, Lookup, NotFoundError, resolve
from virt_core.instancetype.infer import InferError, infer
from virt_core.instancetype.preferences import apply_devices, apply_preference
from virt_core.instancetype.requirements import unmet_requirements
from virt_core.instancetype.revisions import (
    Capture,
    capture,
    revision_for,
    revision_name,
    same_content,
    stored_revisions,
    unused_revisions,
    wants_expansion,
)
from virt_core.instancetype.upgrade import modernized

__all__ = [
    "Capture",
    "Conflict",
    "ConflictError",
    "Found",
    "InferError",
    "Lookup",
    "NotFoundError",
    "add_default_devices",
    "annotations_for",
    "apply",
    "apply_devices",
    "apply_preference",
    "capture",
    "check",
    "expand_vm",
    "find_conflicts",
    "infer",
    "modernized",
    "resolve",
    "revision_for",
    "revision_name",
    "same_content",
    "shape",
    "stored_revisions",
    "unmet_requirements",
    "unused_revisions",
    "wants_expansion",
]
